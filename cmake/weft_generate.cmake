# weft_generate(TARGET t PROTOS a.proto [b.proto...] [IMPORT_DIRS dir...])
#
# Compiles each .proto by protoc and protoc-gen-weft, adds the code to the target, which must be of
# this directory, and links weft::weft. `#include "a.weft.h"` then works in the target and in
# targets that link it. A .proto is named by its path below the first IMPORT_DIRS that contains it
# (default: the current source directory), and may import the files in any of them,
# "weft/options.proto" and "weft/bulk.proto".
#
# WEFT_PROTO_DIR: where weft's own .proto files are. WEFT_PLUGIN: protoc-gen-weft, target or file.
function(weft_generate)
    cmake_parse_arguments(PARSE_ARGV 0 arg "" "TARGET" "PROTOS;IMPORT_DIRS")
    if(NOT arg_TARGET OR NOT arg_PROTOS OR arg_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "usage: weft_generate(TARGET t PROTOS a.proto... [IMPORT_DIRS dir...])")
    endif()
    # In another directory the rules that make the files do not apply: the build finds no rule, or
    # make builds the files twice.
    get_target_property(target_dir ${arg_TARGET} SOURCE_DIR)
    if(NOT target_dir STREQUAL CMAKE_CURRENT_SOURCE_DIR)
        message(FATAL_ERROR "weft_generate: the target '${arg_TARGET}' is made in ${target_dir}: "
                            "call weft_generate() there, or for a library of this directory that "
                            "'${arg_TARGET}' links")
    endif()
    if(NOT arg_IMPORT_DIRS)
        set(arg_IMPORT_DIRS ${CMAKE_CURRENT_SOURCE_DIR})
    endif()
    set(out ${CMAKE_CURRENT_BINARY_DIR}/weft_generated/${arg_TARGET})
    if(TARGET ${WEFT_PLUGIN})
        set(plugin $<TARGET_FILE:${WEFT_PLUGIN}>)
    else()
        set(plugin ${WEFT_PLUGIN})
    endif()
    # The find module makes it a target of weft's own folder only; the package makes a target
    # without the variable.
    if(TARGET protobuf::protoc)
        set(protoc $<TARGET_FILE:protobuf::protoc>)
    else()
        set(protoc ${Protobuf_PROTOC_EXECUTABLE})
    endif()
    set(imports)
    foreach(dir ${arg_IMPORT_DIRS})
        get_filename_component(dir ${dir} ABSOLUTE)
        list(APPEND imports ${dir})
    endforeach()
    set(import_flags ${imports} ${WEFT_PROTO_DIR})
    list(TRANSFORM import_flags PREPEND "-I")

    set(sources)
    foreach(proto ${arg_PROTOS})
        get_filename_component(proto ${proto} ABSOLUTE)
        _weft_name_below("${imports}" ${proto} name)
        string(REGEX REPLACE "\\.proto$" "" stem ${name})
        set(outputs ${out}/${stem}.pb.cc ${out}/${stem}.pb.h
                    ${out}/${stem}.weft.cc ${out}/${stem}.weft.h)
        add_custom_command(
            OUTPUT ${outputs}
            COMMAND ${CMAKE_COMMAND} -E make_directory ${out}
            COMMAND ${protoc} ${import_flags} --plugin=protoc-gen-weft=${plugin}
                    --cpp_out=${out} --weft_out=${out} --dependency_out=${out}/${stem}.d ${name}
            DEPENDS ${proto} ${WEFT_PLUGIN}
            DEPFILE ${out}/${stem}.d
            COMMENT "Generating ${stem}.weft.h"
            VERBATIM)
        # The code that protoc itself writes is compiled without warnings.
        set_source_files_properties(${out}/${stem}.pb.cc PROPERTIES COMPILE_OPTIONS -w)
        set_source_files_properties(${out}/${stem}.weft.cc PROPERTIES
                                    INCLUDE_DIRECTORIES "${imports}")
        list(APPEND sources ${outputs})
    endforeach()
    target_sources(${arg_TARGET} PRIVATE ${sources})
    target_include_directories(${arg_TARGET} SYSTEM PUBLIC ${out})
    target_link_libraries(${arg_TARGET} PUBLIC weft::weft)
endfunction()

# The path of `proto` below the first of `dirs` that contains it.
function(_weft_name_below dirs proto into)
    foreach(dir ${dirs})
        file(RELATIVE_PATH name ${dir} ${proto})
        if(NOT name MATCHES "^\\.\\./")
            set(${into} ${name} PARENT_SCOPE)
            return()
        endif()
    endforeach()
    message(FATAL_ERROR "weft_generate: ${proto} lies in none of the IMPORT_DIRS ${dirs}")
endfunction()
