/* Runs the compiled worker loop under the thread sanitizer, on a control block read from a file.

   Every task adds up its predecessors' cells and writes its own, all plain memory: if an ordering
   were too weak, a task's reads would race with a predecessor's write. Some ask for messages, whose
   phases another thread releases.
   Arguments: the file (control block, then per task: its number, that of the message that it asks
   for plus one, number of predecessors and which), workers, steps. */

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef int64_t word;
int znnpy_prepare(void *, void *, word control);
int znnpy_work(void *, void *, word control, word worker);
int znnpy_release(void *, void *, word control, word phase);
int znnpy_wait(word *, void *, word control, word group, word count, word budget);
int znnpy_stop(void *, void *, word control);

static word control, *cells, *runs;
static _Atomic word asked[2], ended; /* how often tasks have asked for each message */
static _Thread_local void *nothing[4]; /* where numba functions leave "no result" and "no error" */

static void kernel(word *arguments, word worker) {
  word task = arguments[0], message = arguments[1], sum = 1 + worker - worker;
  for (word i = 0; i < arguments[2]; i++) sum += cells[arguments[3 + i]];
  cells[task] = sum;
  runs[task]++;
  if (message) atomic_fetch_add_explicit(&asked[message - 1], 1, memory_order_release);
}

/* Releases messages beside the thread that releases steps. */
static void *release_messages(void *unused) {
  word handed[2] = {0, 0};
  while (!atomic_load_explicit(&ended, memory_order_relaxed)) {
    for (word message = 0; message < 2; message++)
      while (handed[message] < atomic_load_explicit(&asked[message], memory_order_acquire)) {
        handed[message]++;
        znnpy_release(nothing, nothing, control, 2 + message);
      }
    sched_yield();
  }
  return unused;
}

static void *live(void *worker) {
  znnpy_work(nothing, nothing, control, (word)worker);
  return 0;
}

static word *read_words(FILE *file, word count) {
  word *words = aligned_alloc(128, (size_t)(count * 8 + 127) / 128 * 128);
  if (!words || fread(words, 8, count, file) != (size_t)count) exit(3);
  return words;
}

/* File: block words, task count, word offset of the task records, argument words; block; arguments */
int main(int argc, char **argv) {
  FILE *file = fopen(argv[1], "rb");
  word workers = atoi(argv[2]), steps = atoi(argv[3]);
  word *sizes = read_words(file, 4), *block = read_words(file, sizes[0]);
  word *arguments = read_words(file, sizes[3]), tasks = sizes[1];
  cells = calloc(tasks, 8), runs = calloc(tasks, 8);
  for (word task = 0; task < tasks; task++) {
    word *record = block + sizes[2] + 8 * task;
    record[2] = (word)kernel;
    record[3] = (word)arguments;
    arguments += 3 + arguments[2];
  }
  control = (word)block;
  znnpy_prepare(nothing, nothing, control);
  pthread_t threads[64], messages;
  pthread_create(&messages, 0, release_messages, 0);
  for (word i = 0; i < workers; i++) pthread_create(&threads[i], 0, live, (void *)i);
  for (word step = 0; step < steps + 2; step++) {
    word outcome = step < 2 ? 0 : 1;
    while (outcome) znnpy_wait(&outcome, nothing, control, step % 2, step / 2, 50000000);
    if (step < steps) znnpy_release(nothing, nothing, control, step % 2);
  }
  for (word task = 0; task < tasks; task++)
    if (runs[task] != steps / 2) exit(4);
  ended = 1;
  pthread_join(messages, 0);
  znnpy_stop(nothing, nothing, control);
  for (word i = 0; i < workers; i++) pthread_join(threads[i], 0);
  puts("every task ran once a step");
  return 0;
}
