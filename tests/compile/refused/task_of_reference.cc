// A task's result is stored in its frame, which may be destroyed first.
// EXPECT weft::Task returns no reference
#include <weft/task.h>

#ifdef ALLOWED
weft::Task<int*> find(int* at) { co_return at; }
#else
weft::Task<int&> find(int* at) { co_return *at; }
#endif
