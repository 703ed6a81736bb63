# Without vptr: its look at an object opens a pipe, so it calls every object broken in the tests that
# take the last descriptor.
if(WEFT_SANITIZE)
    target_compile_options(weft_options INTERFACE -fsanitize=${WEFT_SANITIZE}
                                                  -fno-sanitize=vptr
                                                  -fno-omit-frame-pointer
                                                  -fno-sanitize-recover=all)
    target_link_options(weft_options INTERFACE -fsanitize=${WEFT_SANITIZE})
endif()
