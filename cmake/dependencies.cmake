# Everything weft links, found once. docs/dependencies.md says why each is here.
find_package(Threads REQUIRED)
find_package(Protobuf 3.21 REQUIRED)
find_package(spdlog REQUIRED)
find_package(PkgConfig REQUIRED)

# Headers only, for <weft/asio.h> and those who include it.
find_package(Boost 1.81 QUIET)
if(Boost_FOUND)
    set(WEFT_WITH_ASIO ON)
else()
    set(WEFT_WITH_ASIO OFF)
    message(STATUS "weft: Boost 1.81 not found, building without what tries <weft/asio.h>")
endif()

if(WEFT_OFI)
    pkg_check_modules(LIBFABRIC IMPORTED_TARGET libfabric>=1.17)
endif()
if(TARGET PkgConfig::LIBFABRIC)
    set(WEFT_WITH_OFI ON)
else()
    set(WEFT_WITH_OFI OFF)
    message(STATUS "weft: building without ofi+tcp: WEFT_OFI is off or libfabric not found")
endif()
