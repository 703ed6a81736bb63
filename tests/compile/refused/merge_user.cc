// A USER field without a merge function: the error has the field's name and the remedy.
// EXPECT merge.v1.All.slowest has merge = USER: merge_user.h must have
#ifndef ALLOWED
#define WITHOUT_MERGE_OF_SLOWEST
#endif
#include "merge.weft.cc"
