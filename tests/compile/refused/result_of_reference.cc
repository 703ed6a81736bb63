// A Result owns its value.
// EXPECT weft::Result holds no reference
#include <weft/result.h>

#ifdef ALLOWED
weft::Result<int*> find();
#else
weft::Result<int&> find();
#endif

bool is_there() { return find().ok(); }
