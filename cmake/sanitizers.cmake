if(WEFT_SANITIZE)
    target_compile_options(weft_options INTERFACE -fsanitize=${WEFT_SANITIZE}
                                                  -fno-omit-frame-pointer
                                                  -fno-sanitize-recover=all)
    target_link_options(weft_options INTERFACE -fsanitize=${WEFT_SANITIZE})
endif()
