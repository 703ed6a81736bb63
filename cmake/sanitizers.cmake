# Without vptr: its check of an object opens a pipe, so it reports every object as invalid in the
# tests that take the last descriptor.
if(WEFT_SANITIZE)
    target_compile_options(weft_options INTERFACE -fsanitize=${WEFT_SANITIZE}
                                                  -fno-sanitize=vptr
                                                  -fno-omit-frame-pointer
                                                  -fno-sanitize-recover=all)
    target_link_options(weft_options INTERFACE -fsanitize=${WEFT_SANITIZE})
endif()
if(WEFT_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    # clang 14 loses the data in front of a function when it splits a coroutine.
    target_compile_options(weft_options INTERFACE -fno-sanitize=function)
    # g++ defines these by itself.
    if(WEFT_SANITIZE MATCHES "address")
        target_compile_definitions(weft_options INTERFACE __SANITIZE_ADDRESS__=1)
    endif()
    if(WEFT_SANITIZE MATCHES "thread")
        target_compile_definitions(weft_options INTERFACE __SANITIZE_THREAD__=1)
    endif()
endif()
if(WEFT_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # The warning about Boost.Asio's fences: the sanitizer knows the mutexes beside them.
    target_compile_options(weft_options INTERFACE -Wno-tsan)
endif()

# For tests and tools, which have many macros and templates: halves the time to compile. The address
# sanitizer still detects a dereferenced null pointer, and one that leaves its object; alignment is
# checked in the library only.
add_library(weft_lighter_sanitizers INTERFACE)
if(WEFT_SANITIZE)
    target_compile_options(weft_lighter_sanitizers INTERFACE
                           -O0 -fno-sanitize=null,object-size,alignment)
endif()
