// As of glibc 2.28.
#pragma once
#include_next <sys/mman.h>
#undef MADV_POPULATE_READ
#undef MADV_POPULATE_WRITE
