// A Result has a Status besides its value: of a Status it would be two outcomes.
// EXPECT give a weft::Status
#include <weft/result.h>

#ifdef ALLOWED
weft::Status outcome();
#else
weft::Result<weft::Status> outcome();
#endif

bool is_ok() { return outcome().ok(); }
