// EXPECT needs Boost 1.81
#ifndef ALLOWED
#include <boost/version.hpp>
#undef BOOST_VERSION
#define BOOST_VERSION 107400
#endif
#include <weft/asio.h>
