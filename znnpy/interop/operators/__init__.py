"""Networks said operator by operator, as other programs say them, and how they become nodes and edges."""
