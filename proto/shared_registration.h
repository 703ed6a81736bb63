// Included by the code that protoc generates for weft's own .proto files (adapt_generated.cmake).
//
// protobuf ends the program when a .proto file or an extension is registered twice. Each copy of
// weft in a process has its own registration, for example plugins that are each linked with the
// static library. So the copy that is loaded first registers, and the others use its descriptors,
// with classes and reflection of their own. protobuf keeps pointers into the first copy, which
// therefore must stay loaded: src/CMakeLists.txt (-z nodelete).
#pragma once

#include <string>
#include <string_view>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/extension_set.h>
#include <google/protobuf/generated_message_reflection.h>

namespace weft::detail {

// Marks a file as registered when another copy has registered it with the same content. Where the
// content differs protobuf ends the program: its offsets would be those of other fields.
// Constructed before the AddDescriptorsRunner of any file (init_priority: 102), which registers the
// files that it imports, too.
class SharedRegistration {
  public:
    explicit SharedRegistration(const google::protobuf::internal::DescriptorTable* table) {
        const google::protobuf::FileDescriptor* registered =
            google::protobuf::DescriptorPool::internal_generated_pool()->FindFileByName(
                table->filename);
        if (!registered) return;
        google::protobuf::FileDescriptorProto content;
        registered->CopyTo(&content);
        const std::string_view own(table->descriptor, static_cast<std::size_t>(table->size));
        if (content.SerializeAsString() == own) table->is_initialized = true;
    }
};

template <class Extendee, class Option>
void register_extension(int number, google::protobuf::internal::FieldType type, bool is_packed,
                        google::protobuf::internal::LazyEagerVerifyFnType verify) {
    namespace pb = google::protobuf::internal;
    pb::ExtensionInfo found;
    if (pb::GeneratedExtensionFinder(&Extendee::default_instance()).Find(number, &found)) return;
    pb::ExtensionSet::RegisterMessageExtension(&Extendee::default_instance(), number, type, false,
                                               is_packed, &Option::default_instance(), verify);
}

}  // namespace weft::detail

// Before the AddDescriptorsRunner of the same table.
#define WEFT_SHARE_REGISTRATION(table) \
    [[gnu::init_priority(101)]] static weft::detail::SharedRegistration shared_registration(table);

// What the constructor of an extension's ExtensionIdentifier calls; before it is instantiated.
#define WEFT_SHARE_EXTENSION(Extendee, Option)                                                 \
    template <>                                                                                \
    template <>                                                                                \
    inline void google::protobuf::internal::MessageTypeTraits<Option>::Register<Extendee>(     \
        int number, FieldType type, bool is_packed, LazyEagerVerifyFnType verify) {            \
        ::weft::detail::register_extension<Extendee, Option>(number, type, is_packed, verify); \
    }
