# The layout of `cmake --install`. Two components: dev (library, headers, generator, package files)
# and tools (the weft command). No installed file contains the path of the build.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/weft)
set(proto_dir ${CMAKE_INSTALL_DATADIR}/weft/proto)

install(TARGETS weft EXPORT weftTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS protoc-gen-weft EXPORT weftTargets RUNTIME COMPONENT dev)
install(DIRECTORY include/weft TYPE INCLUDE COMPONENT dev FILES_MATCHING PATTERN "*.h")
# The files that a user's .proto imports; the others are internal.
foreach(name options bulk)
    install(FILES proto/weft/${name}.proto DESTINATION ${proto_dir}/weft COMPONENT dev)
    install(FILES ${WEFT_GENERATED_DIR}/weft/${name}.pb.h
            DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/weft COMPONENT dev)
endforeach()
install(FILES docs/man/protoc-gen-weft.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT dev)

set(with_libraries ON)  # Libraries that users of weft link and do not include.
if(BUILD_SHARED_LIBS)
    set(with_libraries OFF)
endif()
install(EXPORT weftTargets NAMESPACE weft:: DESTINATION ${cmake_dir} COMPONENT dev)
configure_package_config_file(cmake/weftConfig.cmake.in ${PROJECT_BINARY_DIR}/weftConfig.cmake
                              INSTALL_DESTINATION ${cmake_dir}
                              PATH_VARS CMAKE_INSTALL_INCLUDEDIR proto_dir)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/weftConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/weftConfig.cmake ${PROJECT_BINARY_DIR}/weftConfigVersion.cmake
              cmake/weft_generate.cmake
        DESTINATION ${cmake_dir} COMPONENT dev)

# An archive carries no dependencies, so users of weft link them. pkg-config's --static would add
# the dependencies of these in turn, for which few machines have archives. spdlog is named by its
# libraries: requiring its package, even privately, adds its macros to each compilation, and no
# header of weft includes it.
pkg_check_modules(SPDLOG REQUIRED spdlog)
list(FILTER SPDLOG_LDFLAGS EXCLUDE REGEX "^(-L/usr/lib|-pthread)")
string(JOIN " " spdlog_libraries ${SPDLOG_LDFLAGS})
set(pc_libraries "")
set(pc_requires "Requires: protobuf")
if(BUILD_SHARED_LIBS)
    string(APPEND pc_requires "\nLibs.private: ${spdlog_libraries}")
else()
    set(pc_libraries " ${spdlog_libraries}")
endif()
if(WEFT_WITH_VERBS AND BUILD_SHARED_LIBS)
    string(APPEND pc_requires "\nRequires.private: libibverbs, librdmacm")
elseif(WEFT_WITH_VERBS)
    string(APPEND pc_requires ", libibverbs, librdmacm")
endif()
file(RELATIVE_PATH pc_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" pc_prefix ${pc_prefix})
configure_file(cmake/weft.pc.in ${PROJECT_BINARY_DIR}/weft.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/weft.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
        COMPONENT dev)

if(TARGET weft_cli)
    if(BUILD_SHARED_LIBS)
        file(RELATIVE_PATH to_library ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
        set_target_properties(weft_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${to_library}")
        file(RELATIVE_PATH to_library ${CMAKE_INSTALL_FULL_LIBEXECDIR}/weft
             ${CMAKE_INSTALL_FULL_LIBDIR})
        set_target_properties(weft_perf_cli weft_sim_cli PROPERTIES
                              INSTALL_RPATH "$ORIGIN/${to_library}")
    endif()
    install(TARGETS weft_cli EXPORT weftToolsTargets RUNTIME COMPONENT tools)
    install(TARGETS weft_perf_cli weft_sim_cli
            RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/weft COMPONENT tools)
    install(EXPORT weftToolsTargets NAMESPACE weft:: DESTINATION ${cmake_dir} COMPONENT tools)
    install(FILES docs/man/weft.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)
    install(FILES tools/completion/weft.bash RENAME weft
            DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT tools)
    install(FILES tools/completion/_weft
            DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT tools)
endif()
