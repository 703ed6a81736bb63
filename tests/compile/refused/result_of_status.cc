// A Result contains a Status besides its value: a Result<Status> would have two outcomes.
// EXPECT give a weft::Status
#include <weft/result.h>

#ifdef ALLOWED
weft::Status outcome();
#else
weft::Result<weft::Status> outcome();
#endif

bool is_ok() { return outcome().ok(); }
