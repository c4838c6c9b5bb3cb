"""The words of the machine's memory by name, for kernels and for Python: nothing else says where a word is.

All that the compiled driver and the kernels of stores know is in one array of int64, the memory: its first words, then
those of each table and of each index that grows, and the words that a store has to itself. Beside it are the words of
stores [store, STORE_WORDS], of strata [stratum + 1, STRATUM_WORDS], and the control [CONTROL_WORDS].
"""

# Why the driver came back, besides the codes of `kernels.row_sets` and `fused.emit_insert.PAUSED`, which a kernel of a
# store came back with: an index has no room; a store has no kernel; all strata have ended; a bound is reached between
# two rounds; a shortcut may pay for the recursion that begins; candidates of proofs are to be merged; a set of proofs
# has no room; the orders of joins may be others; the clock is to be looked at.
INDEX_FULL, NEEDS_KERNEL, ENDED, STOPPED, SHORTCUT, MERGE, PROOFS_FULL, PLAN_AGAIN, LIMITS = range(20, 29)

# The first words. Candidates and rows of drivers before a pause; the same for kernels that make none, without end; of
# tables with tags the number of the next round, in which rows become recent, and of the last one in which stable ones
# have: rounds are numbered through all runs of a memory. And the rows that become recent at once where they do so in
# pieces, of which so many may wait.
LEFT, LEFT_WITHOUT_PAUSE, NEXT_ROUND, BOUND, PIECE, FIRST_FREE = range(6)
MOST_WAITING = 32

# A table. Rows from START to STOP are recent, those below STABLE and VISIBLE are read as that.
START, STOP, SIZE, STABLE, VISIBLE, ROW_WIDTH = range(6)
# Addresses and sizes. ROOM is the number of rows that the log and the hash may have.
LOG, ROOM, HASH, HASH_SLOTS, ARENA_ROOM, COUNT, STATE = range(6, 13)
# The first of those of `row_sets.SetParameters`.
SETS, SETS_END = 13, 21
# Of a table with tags: whether recent rows are a list; the list of those, from START to STOP, and the list of those
# that will be, with its length; the packed kernel that ends its rounds, 0 without one, and its block; the round in
# which each row became recent; whether all rows are certain.
IS_LISTED, LIST, NEXT_LIST, LISTED, END_ROUND, END_ROUND_BLOCK, STAMPS, IS_CERTAIN, TOUCHED = range(SETS_END, 30)
# Its candidates: how many there are and may be, and their words. Where they are added up as soon as there are some, the
# packed kernel that does so, else 0, its block, and where its progress begins. Where they wait for the end of a round,
# their rows, which are the stores that wrote them before they are inserted, -1 for facts; and the rows that the table
# had before.
NUM_CANDIDATES, CANDIDATE_ROOM, CANDIDATE_WORDS, ADD_UP, ADD_UP_BLOCK, ADD_UP_PROGRESS = range(30, 36)
CANDIDATE_ROWS, OLD_SIZE = range(36, 38)
# Of proofs: what is new of the tags of recent rows, negated tags, and see `kernels.proof_fold`.
NEWS, NEGATED, LAST, FOLLOWING, CHAINED, NUM_CHAINED, FOLDED, CHANGED = range(38, 46)
# Where in the memory its scalars of tags are, or its factors: PART_WORDS words for each.
PARTS = 46
# Of one whose rows become recent in pieces, of at most PIECE rows: where in the memory the rows that wait are, as pairs
# of a start and a stop, 0 if all rows become recent at once; and how many pairs there are, at most MOST_WAITING.
WAITING, NUM_WAITING, TABLE_WORDS = range(47, 50)
# Of a scalar or factor: the tags of rows, those of candidates, and those that wait for the end of the round.
TAGS, CANDIDATE_TAGS, PENDING, PART_WORDS = range(4)

# An index in chains: its table, what `index.Index` has, the rows that there is room for, and those that are in it.
OF, KEYS, NUM_KEYS, HEADS, NUM_HEADS, FOLLOWING_ROWS, INDEX_ROOM, INDEXED, IS_SHORT, WIDTH, INDEX_WORDS = range(11)

# A store: the address of its kernel, 0 if it has none, and that of its block; the tables that it writes to and whose
# rows it goes through; where its progress begins; how many positions of loops that has; and then what it did: runs,
# candidates, rows that it went through, new rows, those of this round, and how many rounds are noted.
ENTRY, BLOCK, TARGET, DRIVER, PROGRESS, POSITIONS, RUNS, CANDIDATES, DRIVEN, ROWS, ROWS_THIS_ROUND, NUM_NOTED = range(
    12
)
# (round, rows) of the last rounds in which it had new rows.
NOTES, MOST_NOTES = 12, 5
STORE_WORDS = NOTES + 2 * MOST_NOTES

# A stratum: its tables and its stores, those of the next stratum following, the stores from LOOP on being its
# recursion; the table with what that reads of before it, -1 without one; a table of pairs, a shortcut paying only if it
# has them in both directions, or -1; whether sizes decide on the orders of joins before the recursion, and in it; and
# its rounds.
FIRST_TABLE, FIRST_STORE, LOOP, BASE, SYMMETRIC, ONCE_IS_SIZED, LOOP_IS_SIZED, NUM_ROUNDS, STRATUM_WORDS = range(9)

# The control. The stratum at hand, -1 before the first, and the one to stop before; its round, 0 before the recursion;
# the next store; whether stores run or their round is ended, the table at hand then, and what of its merge is done;
# whether the store at hand goes on where it left; the store or index that the driver came back with; whether all is
# ready for the round, and how many reasons to come back before it were looked at; the only table whose candidates are
# to be added up, or -1, where no store is to run; whether they are being added up, and what the store that wrote them
# came back with.
STRATUM, UNTIL, ROUND, NEXT, IS_ENDING, ENDING, STAGE, GOES_ON, AT, IS_READY, LOOKS = range(11)
ONLY_TABLE, IS_ADDING, STORE_CODE = range(11, 14)
# The stores of a recursion from NEXT on, and the tables, among which are all that have recent or new rows.
STORES_STOP, TABLES_START, TABLES_STOP = range(14, 17)
# Bounds: the round to stop before, rows of a round that may follow, rows that all may find, and how many of these may
# be left for the orders of joins to be in doubt; the rows of a stratum at which they are again, and the factor to that.
ROUNDS, MOST, ROWS_LEFT, DOUBT, DOUBT_AGAIN, TIMES, CONTROL_WORDS = range(17, 24)
