// What a task returns is kept in its frame, which may go first.
// EXPECT weft::Task returns no reference
#include <weft/task.h>

#ifdef ALLOWED
weft::Task<int*> find(int* at) { co_return at; }
#else
weft::Task<int&> find(int* at) { co_return *at; }
#endif
