# weft_options: the compile options of all targets of weft.
add_library(weft_options INTERFACE)
target_compile_options(weft_options INTERFACE -Wall -Wextra -Wshadow -Wnon-virtual-dtor
                                              -Wpedantic -Werror=return-type)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ 12 falsely reports uninitialised values in coroutine frames and std::optional.
    target_compile_options(weft_options INTERFACE -Wno-maybe-uninitialized)
endif()
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # To g++ a unity source is a header: it warns of coroutines there that use unnamed namespaces.
    add_compile_options(-Wno-subobject-linkage)
endif()

# Calls inside the library need not go through the PLT, and a thread-local costs one instruction.
target_compile_options(weft_options INTERFACE -fvisibility-inlines-hidden
                                              -ftls-model=initial-exec)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # For neighbouring members g++ 12 packs two registers into a vector for one store; two plain
    # stores are faster, by a tenth of a small call.
    target_compile_options(weft_options INTERFACE -fno-semantic-interposition
                                                  -fno-tree-slp-vectorize -fno-plt)
    # A batch of joined sources is a large unit, in which g++ inlines less; and it guesses the class of
    # an injected clock. Both would make a small call slower than separate sources do.
    target_compile_options(weft_options INTERFACE --param=large-unit-insns=100000
                                                  -fno-devirtualize-speculatively)
    # Two plugins of a program, each linked with a static weft, share none of its variables.
    target_compile_options(weft_options INTERFACE -fno-gnu-unique)
endif()
