# cmake -D STEM=…/weft/NAME.pb -P adapt_generated.cmake
#
# Changes to the code that protoc generates for weft's own .proto files:
# - A file is registered with protobuf once per process, by whichever copy of weft is loaded first:
#   shared_registration.h.
# - protoc puts the options `(weft.method)`, `(weft.field)` and `(weft.file)` into namespace weft, as
#   variables of these names in every translation unit that includes a generated header. Here they
#   become weft::detail::proto_options::method, field and file.
cmake_minimum_required(VERSION 3.25)
get_filename_component(name ${STEM} NAME_WE)

# Replaces each match of PATTERN in `text`, and fails unless there are COUNT.
function(adapt FILE COUNT PATTERN REPLACEMENT)
    string(REGEX REPLACE "${PATTERN}" "<adapted>${REPLACEMENT}" adapted "${text}")
    string(REGEX MATCHALL "<adapted>" found "${adapted}")
    list(LENGTH found count)
    if(NOT count EQUAL COUNT)
        message(FATAL_ERROR "${FILE}: ${count} of ${COUNT} places found for '${REPLACEMENT}': this "
                            "protoc writes them in another way: adapt "
                            "proto/adapt_generated.cmake to it")
    endif()
    string(REPLACE "<adapted>" "" adapted "${adapted}")
    set(text "${adapted}" PARENT_SCOPE)
endfunction()

set(extensions 0)
if(name STREQUAL options)
    set(extensions 3)
endif()

foreach(suffix h cc)
    set(file ${STEM}.${suffix})
    file(READ ${file} text)
    if(suffix STREQUAL cc)
        adapt(${file} 1 "// @@protoc_insertion_point\\(includes\\)\n"
              "#include \"shared_registration.h\"\n\\0")
        adapt(${file} 1
              "PROTOBUF_[A-Z0-9_]+ static ::_pbi::AddDescriptorsRunner [a-z0-9_]+\\(([^;]*)\\);"
              "WEFT_SHARE_REGISTRATION(\\1)\n\\0")
        set(extension "ExtensionIdentifier<([^,;]*),[^;]*MessageTypeTraits<([^;>]*)>[^;]*;")
        adapt(${file} ${extensions} "\nPROTOBUF_[A-Z0-9_]+ [^;]*${extension}"
              "\n}  // namespace weft\nWEFT_SHARE_EXTENSION(\\1, \\2)\nnamespace weft {\\0")
    endif()
    adapt(${file} ${extensions}
          "\n((extern|PROTOBUF_[A-Z0-9_]+)[ \n][^;]*ExtensionIdentifier<[^;]*;)"
          "\nnamespace detail::proto_options {\n\\1\n}  // namespace detail::proto_options")
    file(WRITE ${file} "${text}")
endforeach()
