// A field with USER, and no function for it: said with the field's name and what to write.
// EXPECT merge.v1.All.slowest has merge = USER: merge_user.h has to have
#ifndef ALLOWED
#define WITHOUT_MERGE_OF_SLOWEST
#endif
#include "merge.weft.cc"
