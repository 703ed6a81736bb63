// The names of weft's options for .proto files are in weft::detail::proto_options.
// EXPECT method
#include "echo.weft.h"

#ifdef ALLOWED
const auto& option = weft::detail::proto_options::method;
#else
const auto& option = weft::method;
#endif
