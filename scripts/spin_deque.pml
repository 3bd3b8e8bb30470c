/* The Chase-Lev deques with parking, as kernels/znnpy_kernels/scheduling/{deque,parking,worker}.py run them.

   The main thread brings ITEMS items to the injector and then waits until all work is done; with -DMESSAGES the last is
   brought by the thread for messages. Who has the lock word RELEASING owns the injector. Workers look at their own deque
   and the injector, say that they search while they look at all others', and park. The first CHILDREN items make their
   worker push EACH more. Checked: every item runs exactly once (assertion), nobody sleeps for ever (no invalid end
   state), and nobody is counted as a sleeper at the end (assertion).

   Every shared access is a statement of its own. Spin assumes sequential consistency; why weaker
   orderings are enough stands in znnpy/scheduler/README.md.

   -DEARLY_LOAD  the owner looks at the top before it has lowered the bottom: an item runs twice (with EACH=2)
   -DNO_SWAP     the owner takes its last entry without compare-and-swap: an item runs twice
   -DNO_LOCK     with MESSAGES: both threads push without the lock word, and an item is lost
   and those of spin_parking.pml */

#ifndef ITEMS
#define ITEMS 2
#endif
#ifndef WORKERS
#define WORKERS 2
#endif
#ifdef MESSAGES
#define FIRST_ITEMS (ITEMS - 1)
#define LEAVING (WORKERS + 1)
#else
#define FIRST_ITEMS ITEMS
#define LEAVING WORKERS
#endif
#define INJECTOR WORKERS
#define QUEUES (WORKERS + 1)
#define CAPACITY 4
#ifndef CHILDREN
#define CHILDREN 1
#endif
#ifndef EACH
#define EACH 1
#endif
#define ALL (ITEMS + CHILDREN * EACH)
#define SLOT(queue, index) slots[(queue) * CAPACITY + (index) % CAPACITY]
#define LOOK look()

short top[QUEUES], bottom[QUEUES];
byte slots[QUEUES * CAPACITY];
byte ran[ALL + 1];          /* items are numbered from 1; 0 means none */
byte finished, left;
bool releasing;             /* the lock word */

#include "spin_parking.pml"

inline push(queue, entry) {
  b = bottom[queue];
  SLOT(queue, b) = entry;
  bottom[queue] = b + 1
}

inline compare_and_swap_top(queue) {
  atomic { won = (top[queue] == t); if :: won -> top[queue] = t + 1 :: else fi }
}

inline take(queue) {
#ifdef EARLY_LOAD
  t = top[queue];
  b = bottom[queue] - 1;
  bottom[queue] = b;
#else
  b = bottom[queue] - 1;
  bottom[queue] = b;
  t = top[queue];
#endif
  if
  :: t < b -> item = SLOT(queue, b)
  :: t == b ->
#ifdef NO_SWAP
    top[queue] = t + 1; won = true;
#else
    compare_and_swap_top(queue);
#endif
    if :: won -> item = SLOT(queue, b) :: else fi;
    bottom[queue] = b + 1
  :: t > b -> bottom[queue] = b + 1
  fi
}

inline steal(queue) {
  t = top[queue];
  b = bottom[queue];
  if
  :: t < b ->
    stolen = SLOT(queue, t);
    compare_and_swap_top(queue);
    if :: won -> item = stolen :: else fi
  :: else
  fi
}

inline bring(entry) {
#ifndef NO_LOCK
  atomic { !releasing -> releasing = true };
#endif
  push(INJECTOR, entry);
#ifndef NO_LOCK
  releasing = false;
#endif
  wake(1)
}

inline look() {
  seen = stop; v = 0;
  do
  :: v == QUEUES || seen -> break
  :: else -> t = top[v]; seen = (t < bottom[v]); v++
  od
}

proctype Worker(byte me) {
  short t, b; byte item, stolen, number, v, woken; bool won, seen;
  do
  :: stop -> break
  :: else -> skip;
    d_step { item = 0; stolen = 0; number = 0; woken = 0; won = false; seen = false; b = 0; t = top[me] };
    if :: t < bottom[me] -> take(me) :: else fi;
    if :: item == 0 -> steal(INJECTOR) :: else fi;
    if
    :: item == 0 ->
      state[me] = SEARCHING;
      v = WORKERS;
      do
      :: item != 0 || v == 0 -> break
      :: else -> v--; if :: v != me -> steal(v) :: else fi
      od;
      state[me] = AWAKE
    :: else
    fi;
    skip; /* forget what no longer matters: fewer states */
    d_step { t = 0; b = 0; stolen = 0; won = false };
    if
    :: item == 0 -> park()
    :: else ->
      ran[item]++;
      assert(ran[item] == 1);
      if
      :: item <= CHILDREN ->
        number = 0;
        do
        :: number == EACH -> break
        :: else -> push(me, ITEMS + (item - 1) * EACH + 1 + number); number++
        od;
        wake(2)
      :: else
      fi;
      finished++
    fi
  od;
  left++
}

#ifdef MESSAGES
proctype Messages() {
  short b; byte v, woken; bool won;
  bring(ITEMS);
  left++
}
#endif

init {
  short b; byte item, v, woken; bool won;
  for (v : 0 .. WORKERS - 1) { run Worker(v) }
#ifdef MESSAGES
  run Messages();
#endif
  for (item : 1 .. FIRST_ITEMS) { bring(item) }
  finished == ALL;
  stop = true;
  wake(WORKERS);
  left == LEAVING;
  check_sleepers()
}
