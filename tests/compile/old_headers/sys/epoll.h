// As of glibc 2.28.
#pragma once
#include_next <sys/epoll.h>
#define epoll_pwait2 not_in_glibc_2_28
