/* The Chase-Lev deques with parking, as kernels/znnpy_kernels/scheduling/{deque,parking,worker}.py run them.

   The main thread brings ITEMS items to the injector and then waits until all work is done; with -DMESSAGES the last is
   brought by the thread for messages. Who has the lock word RELEASING owns the injector. Workers steal them, the first CHILDREN items make their worker push one more, and idle workers park. Checked:
   every item runs exactly once (assertion), and nobody sleeps for ever (no invalid end state).

   Every shared access is a statement of its own. Spin assumes sequential consistency; why weaker
   orderings are enough stands in znnpy/scheduler/README.md.

   -DNO_SWAP     the owner takes its last entry without compare-and-swap: an item runs twice
   -DNO_RECHECK  a worker parks without looking again after its announcement: it sleeps for ever
   -DNO_LOCK     with MESSAGES: both threads push without the lock word, and an item is lost */

#ifndef ITEMS
#define ITEMS 2
#endif
#ifndef WORKERS
#define WORKERS 2
#endif
#ifdef MESSAGES
#define FIRST_ITEMS (ITEMS - 1)
#else
#define FIRST_ITEMS ITEMS
#endif
#define INJECTOR WORKERS
#define QUEUES (WORKERS + 1)
#define CAPACITY 4
#ifndef CHILDREN
#define CHILDREN 1
#endif
#define ALL (ITEMS + CHILDREN)
#define SLOT(queue, index) slots[(queue) * CAPACITY + (index) % CAPACITY]

short top[QUEUES], bottom[QUEUES];
byte slots[QUEUES * CAPACITY];
byte ran[ALL + 1];          /* items are numbered from 1; 0 means none */
byte finished;
bool stop;
bool releasing;             /* the lock word */
byte sleepers;
bool parked[WORKERS];
byte semaphore[WORKERS];

inline push(queue, entry) {
  b = bottom[queue];
  SLOT(queue, b) = entry;
  bottom[queue] = b + 1
}

inline compare_and_swap_top(queue) {
  atomic { won = (top[queue] == t); if :: won -> top[queue] = t + 1 :: else fi }
}

inline take(queue) {
  b = bottom[queue] - 1;
  bottom[queue] = b;
  t = top[queue];
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

inline claim(worker) {
  atomic { won = parked[worker]; parked[worker] = false };
  if :: won -> sleepers-- :: else fi
}

inline wake(most) {
  woken = 0; v = 0;
  if
  :: sleepers > 0 ->
    do
    :: v == WORKERS || woken == most -> break
    :: else ->
      if
      :: parked[v] -> claim(v); if :: won -> semaphore[v]++; woken++ :: else fi
      :: else
      fi;
      v++
    od
  :: else
  fi
}

inline park() {
  sleepers++;
  parked[me] = true;
  seen = false;
#ifndef NO_RECHECK
  seen = stop; v = 0;
  do
  :: v == QUEUES || seen -> break
  :: else -> t = top[v]; seen = (t < bottom[v]); v++
  od;
#endif
  if
  :: seen -> claim(me)
  :: else -> do :: parked[me] -> semaphore[me] > 0; semaphore[me]-- :: else -> break od
  fi
}

proctype Worker(byte me) {
  short t, b; byte item, stolen, v, woken; bool won, seen;
  do
  :: stop -> break
  :: else -> skip;
    d_step { item = 0; stolen = 0; woken = 0; won = false; seen = false; b = 0; t = top[me] };
    if :: t < bottom[me] -> take(me) :: else fi;
    v = QUEUES;
    do
    :: item != 0 || v == 0 -> break
    :: else -> v--; if :: v != me -> steal(v) :: else fi
    od;
    skip; /* forget what no longer matters: fewer states */
    d_step { t = 0; b = 0; stolen = 0; won = false };
    if
    :: item == 0 -> park()
    :: else ->
      ran[item]++;
      assert(ran[item] == 1);
      if :: item <= CHILDREN -> push(me, item + ITEMS); wake(1) :: else fi;
      finished++
    fi
  od
}

#ifdef MESSAGES
proctype Messages() {
  short b; byte v, woken; bool won;
  bring(ITEMS)
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
  wake(WORKERS)
}
