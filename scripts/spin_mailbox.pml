/* The mailbox of the communication thread, as kernels/znnpy_kernels/scheduling/{mailbox,messages,backoff}.py run it.

   WRITERS tasks post their numbers, ROUNDS times each, again once their message is done; the reader takes posts, MOST at
   once, starts them, sees some done, runs the light tasks that these make ready, of which the first writer's posts a
   number of its own, and naps until a post ends that. Checked: no writer meets a slot that is in use, and each number is
   taken as often as it was posted (assertions); no nap begins while a post waits whose writer has raised the semaphore
   (assertion): it would end by its time alone.

   -DPOST_FIRST  a writer raises the semaphore before its number is in the slot: a nap ends for nothing, and the next
                one begins although the number is there
   -DONE_LOOK    the reader takes as many as it may at once, and no more before it sleeps: others wait
   -DFEW_SLOTS   fewer slots than numbers: a writer meets one in use */

#define WRITERS 2
#ifndef ROUNDS
#define ROUNDS 2
#endif
#define LIGHT WRITERS       /* the number that the reader's own task posts */
#define NUMBERS (WRITERS + 1)
#define MOST 1
#ifdef FEW_SLOTS
#define SLOTS 1
#else
#define SLOTS NUMBERS
#endif
#define POSTS (WRITERS * ROUNDS + ROUNDS)

byte place, taken;
byte slots[SLOTS];          /* 0, or a number plus one */
byte semaphore, posting;    /* posting: numbers in slots whose semaphore is not raised yet */
byte started[NUMBERS], done[NUMBERS], under_way;

inline post(number) {
  atomic { at = place; place++ };
  assert(slots[at % SLOTS] == 0);
#ifdef POST_FIRST
  semaphore++;
  slots[at % SLOTS] = number + 1
#else
  atomic { slots[at % SLOTS] = number + 1; posting++ };
  atomic { semaphore++; posting-- }
#endif
}

proctype Writer(byte number) {
  byte at, round;
  for (round : 1 .. ROUNDS) {
    post(number);
    done[number] == round && (number != 0 || done[LIGHT] == round)
  }
}

inline start_posted() {
  found = 0;
  do
  :: found == MOST ->
#ifdef ONE_LOOK
    break
#else
    found = 0
#endif
  :: else ->
    number = slots[taken % SLOTS];
    if :: number == 0 -> break :: else fi;
    slots[taken % SLOTS] = 0;
    atomic { if :: semaphore > 0 -> semaphore-- :: else fi };
    taken++;
    found++;
    number--;
    started[number]++;
    under_way++
  od;
  number = 0
}

/* Any of those under way, or none; the reader's own number is posted by a light task of the first writer's. */
inline complete() {
  seen = 0; number = 0;
  do
  :: number == NUMBERS -> break
  :: number < NUMBERS && done[number] < started[number] ->
    done[number]++; under_way--; seen++;
    if :: number == 0 -> post(LIGHT) :: else fi;
    number++
  :: number < NUMBERS -> number++
  od;
  number = 0
}

init {
  byte at, found, seen, number;
  for (number : 0 .. WRITERS - 1) { run Writer(number) }
  number = 0;
  do
  :: taken == POSTS && under_way == 0 -> break
  :: else ->
    do
    :: start_posted();
      complete();
      if :: seen == 0 -> break :: else fi
    od;
    skip;
    d_step { seen = 0; found = 0; at = 0 };
    /* A nap: it ends by a post, or, once something is under way, by its time. */
    atomic {
      assert(semaphore > 0 || posting > 0 || slots[taken % SLOTS] == 0);
      if
      :: semaphore > 0 -> semaphore--
      :: under_way > 0 -> skip
      :: taken == POSTS && under_way == 0 -> skip
      fi
    }
  od;
  for (number : 0 .. NUMBERS - 1) { assert(started[number] == ROUNDS && done[number] == ROUNDS) }
}
