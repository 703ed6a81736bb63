// A success without a value is a Status.
// EXPECT weft::Result<void> is weft::Status
#include <weft/result.h>

#ifdef ALLOWED
weft::Status outcome();
#else
weft::Result<void> outcome();
#endif

bool is_ok() { return outcome().ok(); }
