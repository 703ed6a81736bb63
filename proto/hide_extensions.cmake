# cmake -D STEM=…/weft/options.pb -P hide_extensions.cmake
#
# protoc puts the options `(weft.method)`, `(weft.field)` and `(weft.file)` into namespace weft, as
# variables of these names in every translation unit that includes a generated header. Here they
# become weft::detail::proto_options::method, field and file.
foreach(suffix h cc)
    file(READ ${STEM}.${suffix} text)
    string(REGEX REPLACE
           "(\n)(extern|PROTOBUF_[A-Z0-9_]+)([ \n][^;]*ExtensionIdentifier<[^;]*;)"
           "\\1namespace detail::proto_options {\n\\2\\3\n}  // namespace detail::proto_options"
           hidden "${text}")
    string(REGEX MATCHALL "\nnamespace detail::proto_options {" found "${hidden}")
    list(LENGTH found count)
    if(NOT count EQUAL 3)
        message(FATAL_ERROR "${STEM}.${suffix}: ${count} extensions found of 3: this protoc writes "
                            "them in another way, which proto/hide_extensions.cmake has to learn")
    endif()
    file(WRITE ${STEM}.${suffix} "${hidden}")
endforeach()
