# The verbs transport over the fake device (support/fake_verbs.h), which takes the place of
# rdma-core in these executables.
add_library(weft_fake_verbs OBJECT
            support/fake_verbs.cc support/fake_verbs_cm.cc support/fake_verbs_cm_words.cc
            support/fake_verbs_device.cc support/fake_verbs_pair.cc support/fake_verbs_queue.cc
            support/fake_verbs_wire.cc)
target_link_libraries(weft_fake_verbs PRIVATE weft_test_options)
# libfabric goes on with the real one.
target_compile_options(weft_fake_verbs PRIVATE -fvisibility=hidden)

# The tests of the transport, beside those of the others.
file(GLOB verbs_tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/system/na/verbs/*_test.cc)
add_executable(weft_system_verbs ${verbs_tests} leaks/live_memory.cc)
target_link_libraries(weft_system_verbs PRIVATE weft_test_support weft_fake_verbs)
weft_join(weft_system_verbs)
weft_discover(weft_system_verbs system)

# The conformance suite, but for peers in processes of their own.
add_executable(weft_conformance_fake $<TARGET_OBJECTS:weft_conformance> leaks/live_memory.cc)
target_link_libraries(weft_conformance_fake PRIVATE weft_test_support weft_fake_verbs)
weft_discover(weft_conformance_fake conformance TEST_SPEC "~[kill]*- Verbs"
              TEST_SUFFIX " over the fake device")

# Runtimes with several contexts, over verbs alone.
add_executable(weft_contexts_fake system/api/context_channels_test.cc
               system/api/context_load_test.cc system/api/context_regions_test.cc
               system/api/contexts_test.cc leaks/live_memory.cc)
target_compile_definitions(weft_contexts_fake PRIVATE WEFT_TEST_STEERING="verbs")
target_link_libraries(weft_contexts_fake PRIVATE weft_test_support weft_fake_verbs)
weft_discover(weft_contexts_fake system TEST_SUFFIX " over the fake device")

foreach(name weft_system_verbs weft_conformance_fake weft_contexts_fake)
    add_test(NAME "${name} calls nothing of rdma-core that the fake device lacks"
             COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/system/na/verbs/fake_is_whole.sh $<TARGET_FILE:${name}>)
    set_tests_properties("${name} calls nothing of rdma-core that the fake device lacks"
                         PROPERTIES LABELS system)
endforeach()
