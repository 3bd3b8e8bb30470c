/* Join counters and light tasks, as kernels/znnpy_kernels/scheduling/{light_tasks,worker}.py run them.

   A graph of two copies, the even and the odd step, of

       tell (light) -> values, other, sum    values -> post (light) ~ message ~> sum (light) -> update    other -> update

   whose update the values of the next step wait for. The main thread releases STEPS steps, each copy again once its
   update has run, and runs what is light; the thread for messages releases what was posted for, and runs what is light.
   What is not light goes to the injector, under the lock word. One worker runs the rest, and parks. Checked: each task
   runs once a step, after all that it waits for, and no token comes too early (assertions); nobody waits for ever
   (no invalid end state). The worker's own deque is a set of tasks here: spin_deque.pml has the real one.

   -DREARM_LATE  a light task's counter is set back after its successors were told: a token of the next step is lost
   -DNO_WAKE     what light tasks hand out is pushed without waking: the worker sleeps for ever
   -DNO_LOCK     both threads push without the lock word, and a task is lost
   and those of spin_parking.pml */

#ifndef STEPS
#define STEPS 3
#endif
#define WORKERS 1
#define KINDS 6
#define TASKS (2 * KINDS)
#define TELL 0
#define VALUES 1
#define OTHER 2
#define POST 3
#define SUM 4
#define UPDATE 5
#define KIND(task) ((task) % KINDS)
#define COPY(task) ((task) / KINDS)
#define IS_LIGHT(task) (KIND(task) == TELL || KIND(task) == POST || KIND(task) == SUM)
#define JOINS(task) ((KIND(task) == VALUES || KIND(task) >= SUM) -> 2 : 1)
#define SUCCESSORS(task) (KIND(task) == TELL -> 3 : (KIND(task) == POST -> 0 : 1))
#define SUCCESSOR(task, number) \
  (KIND(task) == TELL -> (task) + (number == 2 -> SUM : number + 1) : \
  (KIND(task) == VALUES -> (task) + 2 : \
  (KIND(task) == OTHER -> (task) + 3 : \
  (KIND(task) == SUM -> (task) + 1 : KINDS * (1 - COPY(task)) + VALUES))))
#define NONE TASKS
#define CAPACITY 4          /* the most of the worker's share that wait at once */
#define LOOK seen = (stop || top < bottom || own != 0)

byte counter[TASKS];
byte ran[TASKS];
byte completed[2];
byte top, bottom, slots[CAPACITY];  /* the injector */
short own;                          /* the worker's deque: a bit a task */
bool releasing;
chan posted = [2] of { byte };

#include "spin_parking.pml"

inline arrive(to) {
  missing = counter[to];
  assert(missing > 0);
  last = (missing == 1);
  if
  :: missing > 1 -> atomic { last = (counter[to] == 1); counter[to]-- }
  :: else
  fi;
  if :: last -> counter[to] = 0 :: else fi
}

inline check(one) {
  d_step {
    assert(KIND(one) != VALUES || ran[one - 1] == ran[one] + 1);
    assert(KIND(one) != VALUES || ran[KINDS * (1 - COPY(one)) + UPDATE] == ran[one] + COPY(one));
    assert(KIND(one) != OTHER || ran[one - 2] == ran[one] + 1);
    assert(KIND(one) != POST || ran[one - 2] == ran[one] + 1);
    assert(KIND(one) != SUM || (ran[one - 1] == ran[one] + 1 && ran[one - 4] == ran[one] + 1));
    assert(KIND(one) != UPDATE || (ran[one - 1] == ran[one] + 1 && ran[one - 3] == ran[one] + 1));
    ran[one]++
  }
}

inline run_kernel(task_run) {
  check(task_run);
  if :: KIND(task_run) == POST -> posted ! COPY(task_run) :: else fi
}

/* The count of the group: its only member is the update. */
inline complete(member) {
  if :: KIND(member) == UPDATE -> completed[COPY(member)]++ :: else fi
}

inline hand(ready) {
  arrive(ready);
  if
  :: last && IS_LIGHT(ready) -> waiting[count] = ready; count++
  :: last && !IS_LIGHT(ready) ->
#ifndef NO_LOCK
    if :: pushed == 0 -> atomic { !releasing -> releasing = true } :: else fi;
#endif
    end = bottom;
    slots[end % CAPACITY] = ready;
    bottom = end + 1;
    pushed++
  :: else
  fi
}

inline handed_out() {
  if
  :: pushed > 0 ->
#ifndef NO_LOCK
    releasing = false;
#endif
#ifndef NO_WAKE
    wake(pushed)
#else
    skip
#endif
  :: else
  fi;
  pushed = 0
}

inline release(source) {
  count = 0; pushed = 0;
  hand(source);
  handed_out();
  do
  :: count == 0 -> break
  :: else ->
    count--; task = waiting[count];
#ifndef REARM_LATE
    counter[task] = JOINS(task);
#endif
    run_kernel(task);
    number = 0;
    do
    :: number == SUCCESSORS(task) -> break
    :: else -> next = SUCCESSOR(task, number); hand(next); number++
    od;
    handed_out();
#ifdef REARM_LATE
    counter[task] = JOINS(task);
#endif
    complete(task);
    number = 0
  od;
  skip;
  d_step { task = 0; next = 0; end = 0; missing = 0; last = false; v = 0; woken = 0; won = false; waiting[0] = 0 }
}

proctype Worker(byte me) {
  byte task, kept = NONE, next, number, missing, v, woken, pushed, end; bool last, won, seen;
  do
  :: stop -> break
  :: else ->
    task = kept; kept = NONE;
    if :: task == NONE && own != 0 -> d_step {
        task = 0;
        do :: (own >> task) & 1 -> break :: else -> task++ od;
        own = own & ~(1 << task)
      }
    :: else
    fi;
    if
    :: task == NONE && top < bottom -> task = slots[top % CAPACITY]; top++
    :: else
    fi;
    if
    :: task == NONE -> state[me] = SEARCHING; state[me] = AWAKE; park()
    :: else ->
      counter[task] = JOINS(task);
      run_kernel(task);
      number = 0;
      do
      :: number == SUCCESSORS(task) -> break
      :: else ->
        next = SUCCESSOR(task, number);
        arrive(next);
        if
        :: last && kept == NONE -> kept = next
        :: last && kept != NONE -> own = own | (1 << kept); kept = next; pushed++
        :: else
        fi;
        number++
      od;
      if :: pushed > 0 -> wake(pushed) :: else fi;
      complete(task);
      d_step { task = NONE; next = 0; number = 0; missing = 0; last = false; pushed = 0; v = 0; woken = 0; won = false; seen = false }
    fi
  od
}

proctype Messages() {
  byte task, copy, next, number, missing, v, woken, pushed, count, end, waiting[2]; bool last, won;
end_idle:
  do
  :: posted ? copy -> release(KINDS * copy + SUM); copy = 0
  od
}

init {
  byte task, next, number, missing, v, woken, pushed, count, end, step, waiting[2]; bool last, won;
  atomic {
    for (task : 0 .. TASKS - 1) { counter[task] = JOINS(task) }
    counter[VALUES] = 1;  /* the carried edge has its token at first */
    task = 0;
    run Worker(0);
    run Messages()
  }
  for (step : 0 .. STEPS - 1) {
    if :: step >= 2 -> completed[step % 2] == step / 2 :: else fi;
    release(KINDS * (step % 2) + TELL)
  }
  completed[0] == (STEPS + 1) / 2 && completed[1] == STEPS / 2;
  stop = true;
  wake(WORKERS)
}
