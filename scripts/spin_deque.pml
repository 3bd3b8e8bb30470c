/* The Chase-Lev deques with parking, as kernels/znnpy_kernels/{deque,parking,worker}.py run them.

   A releaser pushes ITEMS items into the injector and then waits until all work is done; workers
   steal them, the first CHILDREN items make their worker push one more, and idle workers park. Checked:
   every item runs exactly once (assertion), and nobody sleeps for ever (no invalid end state).

   Every shared access is a statement of its own. Spin assumes sequential consistency; why weaker
   orderings are enough stands in znnpy/scheduler/README.md.

   -DNO_SWAP     the owner takes its last entry without compare-and-swap: an item runs twice
   -DNO_RECHECK  a worker parks without looking again after its announcement: it sleeps for ever */

#ifndef ITEMS
#define ITEMS 2
#endif
#ifndef WORKERS
#define WORKERS 2
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

init {
  short b, t; byte item, v, woken; bool won;
  for (v : 0 .. WORKERS - 1) { run Worker(v) }
  for (item : 1 .. ITEMS) { push(INJECTOR, item); wake(1) }
  finished == ALL;
  stop = true;
  wake(WORKERS)
}
