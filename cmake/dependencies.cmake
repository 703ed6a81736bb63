# Everything weft links, found once. docs/dependencies.md says why each is here.
find_package(Threads REQUIRED)
find_package(Protobuf 3.21 REQUIRED)
find_package(spdlog REQUIRED)
find_package(PkgConfig REQUIRED)

pkg_check_modules(LIBFABRIC IMPORTED_TARGET libfabric>=1.17)
if(LIBFABRIC_FOUND)
    set(WEFT_WITH_OFI ON)
else()
    set(WEFT_WITH_OFI OFF)
    message(STATUS "weft: libfabric not found, building without ofi+tcp")
endif()
