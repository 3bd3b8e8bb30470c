/* The combining tree of fixed shape: contributions 4..7 are leaves, inner nodes 1..3 have join
   counter 2, and whoever arrives second adds the pair in fixed order and carries it up.

   Three workers take leaves in any order, for two steps in a row. Checked: each node is added once
   a step, after both children (assertion), with the same value for every schedule (assertion: the
   combination does not commute), and nobody waits inside a step (no invalid end state).

   -DSPLIT_DECREMENT  the counter is decremented by a load and a store: nobody arrives second
   -DREARM_LATE       the counter of the last node is set back after the step was told to be over:
                     a token of the next step is lost */

#define LEAVES 4
#define STEPS 2
#define WORKERS 3
#define COMBINE(left, right) ((3 * (left) + 5 * (right) + 1) % 251)

byte counter[LEAVES];
byte value[2 * LEAVES];
byte added[LEAVES];
byte next_leaf = LEAVES;    /* the pool of leaves of this step */
byte step, expected;

inline arrive(place) {
  missing = counter[place];
  last = (missing == 1);
  if
  :: missing > 1 ->
#ifdef SPLIT_DECREMENT
    missing = counter[place]; counter[place] = missing - 1; last = (missing == 1)
#else
    atomic { last = (counter[place] == 1); counter[place]-- }
#endif
  :: else
  fi;
  if :: last -> counter[place] = 0 :: else fi
}

proctype Worker() {
  byte node, missing, now; bool last;
  do
  :: step == STEPS -> break
  :: atomic { step < STEPS && next_leaf < 2 * LEAVES -> node = next_leaf; next_leaf++; now = step };
    value[node] = node + now;
    last = true;
    do
    :: !last || node == 1 -> break
    :: else ->
      node = node / 2;
      arrive(node);
      if
      :: last ->
#ifdef REARM_LATE
        if :: node > 1 -> counter[node] = 2 :: else fi;
#else
        counter[node] = 2;
#endif
        added[node]++;
        assert(added[node] == now + 1);
        value[node] = COMBINE(value[2 * node], value[2 * node + 1]);
        if
        :: node == 1 ->
          expected = COMBINE(COMBINE(4 + now, 5 + now), COMBINE(6 + now, 7 + now));
          assert(value[1] == expected);
          atomic { step++; if :: step < STEPS -> next_leaf = LEAVES :: else fi }
        :: else
        fi;
#ifdef REARM_LATE
        if :: node == 1 -> counter[node] = 2 :: else fi
#endif
      :: else
      fi
    od
  od
}

init {
  byte v;
  atomic {
    for (v : 1 .. LEAVES - 1) { counter[v] = 2 };
    for (v : 1 .. WORKERS) { run Worker() }
  }
}
