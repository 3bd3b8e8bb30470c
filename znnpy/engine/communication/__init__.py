"""Tasks that ask for messages between ranks, and tasks that wait for them."""
