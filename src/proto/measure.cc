// Computes the memory of parsed messages from their bytes. The walk finds the fields that the
// parser finds. Where it meets bytes that the parser refuses, it has counted all that the parser
// may have allocated until then.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/message.h>

#include <weft/protobuf_message.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/assert.h"
#include "base/fork.h"

namespace weft::detail {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;

namespace {

// The heap bytes of an allocation: glibc's header and rounding.
constexpr std::size_t allocation(std::size_t bytes) {
    return std::max<std::size_t>(32, (bytes + 8 + 15) & ~std::size_t{15});
}

// Lists and tables grow by doubling: while elements move, the old memory exists besides.
constexpr std::size_t growth = 3;
constexpr std::size_t first_of_list = 80;  // Lists begin with room for a few.
constexpr std::size_t pointer = growth * sizeof(void*);
constexpr std::size_t text_object = allocation(sizeof(std::string));
// A node of a map, its part of the table, and of a tree where hashes collide: 176 bytes. It counts
// twice, because a lookup costs more time than memory.
constexpr std::size_t map_entry = 352;
constexpr std::size_t entry_object = 256;  // For parsing an entry before it is inserted into a map.
constexpr std::size_t extension = 256;
constexpr std::size_t first_unknown = 96;  // The set of unknown fields.
constexpr std::size_t unknown_field = growth * 16;
constexpr std::size_t unknown_group = 32;
// A table's part for an entry, or all of the smallest table: it stays allocated when its map is
// cleared.
constexpr std::size_t hidden_of_map = 80;
constexpr std::size_t flat_parts_max = 8;

constexpr std::size_t text_bytes(std::size_t length) { return length > 15 ? length + 32 : 0; }

enum Wire : std::uint8_t { varint, fixed64, delimited, group_begin, group_end, fixed32 };

Wire wire_of(const FieldDescriptor& field) {
    switch (field.type()) {
        case FieldDescriptor::TYPE_DOUBLE:
        case FieldDescriptor::TYPE_FIXED64:
        case FieldDescriptor::TYPE_SFIXED64: return fixed64;
        case FieldDescriptor::TYPE_FLOAT:
        case FieldDescriptor::TYPE_FIXED32:
        case FieldDescriptor::TYPE_SFIXED32: return fixed32;
        case FieldDescriptor::TYPE_STRING:
        case FieldDescriptor::TYPE_BYTES:
        case FieldDescriptor::TYPE_MESSAGE: return delimited;
        case FieldDescriptor::TYPE_GROUP: return group_begin;
        default: return varint;
    }
}

std::size_t bytes_of_scalar(const FieldDescriptor& field) {
    switch (field.cpp_type()) {
        case FieldDescriptor::CPPTYPE_INT64:
        case FieldDescriptor::CPPTYPE_UINT64:
        case FieldDescriptor::CPPTYPE_DOUBLE: return 8;
        case FieldDescriptor::CPPTYPE_BOOL: return 1;
        default: return 4;
    }
}

std::size_t bytes_of_object(const Descriptor& type) {
    return google::protobuf::MessageFactory::generated_factory()
        ->GetPrototype(&type)
        ->SpaceUsedLong();
}

struct Field {
    std::uint32_t number = 0;
    std::uint32_t index = 0;
    Wire wire = varint;
    bool is_repeated = false;
    bool is_map = false;
    std::size_t copies = 1;           // Of a text: a map's key is copied there.
    std::size_t each = 0;             // The memory of one more value, besides its bytes or fields.
    const Layout* message = nullptr;  // Layout of a message field.
    const google::protobuf::EnumDescriptor* values = nullptr;
};

}  // namespace

class Layout {
  public:
    explicit Layout(const Descriptor* type) : type_(type) {}

    const Field* find(std::uint32_t number) const {
        if (number - 1 < fields_.size() && fields_[number - 1].number == number) [[likely]] {
            return &fields_[number - 1];
        }
        const auto at = std::ranges::lower_bound(fields_, number, {}, &Field::number);
        return at != fields_.end() && at->number == number ? &*at : nullptr;
    }
    bool may_extend(std::uint32_t number) const {
        return type_ && type_->IsExtensionNumber(static_cast<int>(number));
    }
    // nullptr: not in this program. Cost: a lock and a search.
    const FieldDescriptor* find_extension(std::uint32_t number) const {
        return DescriptorPool::generated_pool()->FindExtensionByNumber(type_,
                                                                       static_cast<int>(number));
    }
    // A MessageSet: its extensions are identified by number, in a separate encoding.
    bool is_message_set() const { return type_ && type_->options().message_set_wire_format(); }
    bool is_flat() const { return parts_ <= flat_parts_max; }

  private:
    friend class Layouts;
    const Descriptor* const type_;  // nullptr: no field is known.
    std::vector<Field> fields_;     // By number.
    // The number of texts and messages in a message of this type, if all fields are singular;
    // too_large: some are repeated, or it is not known yet.
    std::size_t parts_ = too_large;
};

namespace {
const Layout nothing_known(nullptr);
}

// The layouts of all requested types and of their fields' types, until the process ends.
class Layouts {
  public:
    static Layouts& all() { return base::per_process<Layouts>(); }
    const Layout& of(const Descriptor& type) {
        const std::lock_guard lock(mutex_);
        return build(type);
    }
    Field of(const FieldDescriptor& field) {
        const std::lock_guard lock(mutex_);
        return build(field);
    }

  private:
    const Layout& build(const Descriptor& type) {
        std::unique_ptr<Layout>& kept = layouts_[&type];
        if (kept) return *kept;
        kept = std::make_unique<Layout>(&type);
        Layout& made = *kept;
        for (int i = 0; i < type.field_count(); ++i) made.fields_.push_back(build(*type.field(i)));
        std::ranges::sort(made.fields_, {}, &Field::number);
        made.parts_ = parts_of(type, made.fields_);
        return made;
    }
    static std::size_t parts_of(const Descriptor& type, const std::vector<Field>& fields) {
        std::size_t parts = 0;
        for (const Field& field : fields) {
            if (field.is_repeated) return too_large;
            if (field.message && !field.message->is_flat()) return too_large;
            parts += field.message ? 1 + field.message->parts_ : field.wire == delimited;
        }
        return type.extension_range_count() == 0 ? parts : too_large;
    }
    Field build(const FieldDescriptor& field) {
        Field made;
        made.number = static_cast<std::uint32_t>(field.number());
        made.index = static_cast<std::uint32_t>(field.index());
        made.wire = wire_of(field);
        made.is_repeated = field.is_repeated();
        made.is_map = field.is_map();
        if (field.containing_type()->options().map_entry() && field.number() == 1) made.copies = 4;
        if (field.is_map()) {
            const Descriptor* const value = field.message_type()->map_value()->message_type();
            made.each = map_entry + (value ? bytes_of_object(*value) : 0);
        } else if (const Descriptor* type = field.message_type()) {
            made.each = allocation(bytes_of_object(*type)) + (made.is_repeated ? pointer : 0);
        } else if (made.wire == delimited) {
            made.each = text_object + (made.is_repeated ? pointer : 0);
        } else if (made.is_repeated) {
            made.each = growth * bytes_of_scalar(field);
        }
        if (const Descriptor* type = field.message_type()) made.message = &build(*type);
        made.values = field.enum_type();
        return made;
    }

    std::mutex mutex_;
    std::unordered_map<const Descriptor*, std::unique_ptr<Layout>> layouts_;
};

namespace {

// Reads as the parser does, or further: a length that exceeds its message is followed to the end of
// the body.
class Walk {
  public:
    Walk(ByteView body, std::size_t most)
        : at_(body.data()), body_end_(at_ + body.size()), body_bytes_(body.size()), most_(most) {}

    void whole(const Layout& layout) {
        spend(entry_object);
        message(layout, body_end_, 0, false);
    }
    std::size_t spent() const { return spent_; }
    std::size_t hidden() const { return hidden_; }

  private:
    // The fields seen so far in one occurrence of a message. A singular message that occurs again
    // is the same object, which may already hold fields of the earlier occurrence.
    struct Seen {
        bool is_same = false;
        std::uint64_t fields = 0;  // By index, the first 64.
        std::uint64_t packed = 0;  // Lists allocated at their exact size.
        bool has_unknown = false;
    };
    struct Extent {
        const std::byte* end;
        bool is_outside;  // Outside the enclosing message: the parser fails after it.
        std::size_t bytes(const std::byte* from) const {
            WEFT_DCHECK(from <= end);
            return static_cast<std::size_t>(end - from);
        }
    };

    void stop() { is_over_ = true; }
    void refuse() {
        spent_ = too_large;
        stop();
    }
    void spend(std::size_t bytes) {
        spent_ += bytes;
        if (spent_ > most_) stop();
    }
    void hide(std::size_t bytes) {
        hidden_ += bytes;
        spend(bytes);
    }

    std::uint64_t number() {
        if (at_ < body_end_ && *at_ < std::byte{0x80}) [[likely]] {
            return static_cast<std::uint64_t>(*at_++);
        }
        std::uint64_t value = 0;
        for (unsigned shift = 0; shift < 70 && at_ < body_end_; shift += 7) {
            const auto byte = static_cast<std::uint64_t>(*at_++);
            value |= (byte & 0x7f) << shift;
            if (byte < 0x80) return value;
        }
        stop();
        return 0;
    }
    void skip(std::size_t bytes) {
        WEFT_DCHECK(at_ <= body_end_);
        const auto left = static_cast<std::size_t>(body_end_ - at_);
        at_ += std::min(bytes, left);
        if (bytes > left) stop();
    }
    Extent extent(const std::byte* end) {
        WEFT_DCHECK(end <= body_end_);
        const std::uint64_t length = number();
        WEFT_DCHECK(at_ <= body_end_);
        const auto left = static_cast<std::uint64_t>(body_end_ - at_);
        const std::byte* const to = at_ + std::min(length, left);
        return {to, length > left || to > end};
    }

    // Up to `end`, or to the end of the group of this number.
    void message(const Layout& layout, const std::byte* end, std::uint32_t group, bool is_same) {
        WEFT_DCHECK(end <= body_end_);
        if (layout.is_message_set()) return refuse();
        if (++depth_ > depth_max_ + 1) return stop();
        Seen seen{is_same};
        while (!is_over_ && at_ < end) {
            const auto tag = static_cast<std::uint32_t>(number());
            if (tag >> 3 == 0) stop();
            if (is_over_) break;
            if ((tag & 7) == group_end) {
                if (tag >> 3 != group) stop();
                group = 0;
                break;
            }
            one(layout, tag, end, seen);
        }
        if (at_ > end || group != 0) stop();
        --depth_;
    }

    void one(const Layout& layout, std::uint32_t tag, const std::byte* end, Seen& seen) {
        const auto wire = static_cast<Wire>(tag & 7);
        if (const Field* field = layout.find(tag >> 3)) {
            if (is_taken(*field, wire)) return known(*field, wire, end, seen);
        } else if (layout.may_extend(tag >> 3)) {
            spend(extension);
            if (const FieldDescriptor* named = layout.find_extension(tag >> 3)) {
                Field made = Layouts::all().of(*named);
                made.index = 64;
                if (is_taken(made, wire)) return known(made, wire, end, seen);
            }
        }
        unknown(tag >> 3, wire, end, seen);
    }

    static bool is_taken(const Field& field, Wire wire) {
        const bool may_be_packed = field.is_repeated && field.wire != group_begin;
        return wire == field.wire || (wire == delimited && may_be_packed);
    }

    void known(const Field& field, Wire wire, const std::byte* end, Seen& seen) {
        WEFT_DCHECK(is_taken(field, wire) && (!field.is_map || field.message));
        // 0: beyond the 64th field each occurrence counts both as the first and as a repeated one.
        const std::uint64_t bit = field.index < 64 ? std::uint64_t{1} << field.index : 0;
        const bool is_first = !(seen.fields & bit);
        const bool is_again = bit == 0 || !is_first || seen.is_same;
        seen.fields |= bit;
        if (field.is_repeated && is_first) spend(first_of_list);
        if (field.message) {
            spend(field.each);
            if (field.is_map) hidden_ += hidden_of_map;
            if (is_over_) return;
            const bool is_same = is_again && !field.is_repeated;
            if (wire == group_begin) return message(*field.message, end, field.number, is_same);
            const Extent inner = extent(end);
            if (!is_over_) message(*field.message, inner.end, 0, is_same);
            if (inner.is_outside) stop();
        } else if (field.wire == delimited) {
            const Extent text = extent(end);
            const bool may_grow = text.is_outside || (is_again && !field.is_repeated);
            spend(field.each +
                  (may_grow ? growth : 1) * field.copies * text_bytes(text.bytes(at_)));
            at_ = text.end;
            if (text.is_outside) stop();
        } else if (wire == delimited) {
            packed(field, end, seen, bit, is_again);
        } else {
            if (field.is_repeated) spend_on_list(seen, bit);
            spend(field.each);
            scalar(field);
        }
    }

    // A list of exact size may move once more. Counted once for all lists, because together they
    // are parts of the body.
    void spend_on_list(const Seen& seen, std::uint64_t bit) {
        const bool may_be_exact = bit != 0 && (seen.is_same || (seen.packed & bit));
        if (may_be_exact && !std::exchange(lists_may_move_, true)) {
            spend((growth - 1) * body_bytes_);
        }
    }

    void packed(const Field& field, const std::byte* end, Seen& seen, std::uint64_t bit,
                bool is_again) {
        WEFT_DCHECK(field.is_repeated && !field.message && field.wire != delimited);
        const Extent list = extent(end);
        if (field.values) {
            while (!is_over_ && at_ < list.end) {
                spend(field.each);
                scalar(field);
            }
            if (at_ > list.end) stop();
            if (list.is_outside) stop();
            return;
        }
        if (field.wire == varint) {
            const auto is_last = [](std::byte byte) { return byte < std::byte{0x80}; };
            const auto count = static_cast<std::size_t>(std::count_if(at_, list.end, is_last));
            spend(count * field.each);
            if (at_ < list.end && !is_last(list.end[-1])) stop();
        } else {
            // The first time, the parser knows their number and allocates exactly that.
            const bool is_exact = bit != 0 && !is_again && !list.is_outside;
            spend((is_exact ? 1 : growth) * list.bytes(at_));
            spend_on_list(seen, bit);
            if (is_exact) seen.packed |= bit;
        }
        at_ = list.end;
        if (list.is_outside) stop();
    }

    void scalar(const Field& field) {
        if (field.wire == fixed64) return skip(8);
        if (field.wire == fixed32) return skip(4);
        const std::uint64_t value = number();
        // A closed enum keeps the value as unknown.
        if (field.values && !field.values->FindValueByNumber(static_cast<int>(value))) {
            hide(first_unknown + unknown_field);
        }
    }

    void unknown(std::uint32_t field, Wire wire, const std::byte* end, Seen& seen) {
        hide(unknown_field);
        if (!std::exchange(seen.has_unknown, true)) hide(first_unknown);
        if (wire == varint) {
            number();
        } else if (wire == fixed64) {
            skip(8);
        } else if (wire == fixed32) {
            skip(4);
        } else if (wire == group_begin) {
            spend(unknown_group);
            if (!is_over_) message(nothing_known, end, field, false);
        } else if (wire == delimited) {
            const Extent text = extent(end);
            spend(text_object + (text.is_outside ? growth : 1) * text_bytes(text.bytes(at_)));
            at_ = text.end;
            if (text.is_outside) stop();
        } else {
            stop();
        }
    }

    const std::byte* at_;
    const std::byte* const body_end_;
    const std::size_t body_bytes_;
    const std::size_t most_;
    std::size_t spent_ = 0;
    std::size_t hidden_ = 0;
    bool lists_may_move_ = false;
    int depth_ = 0;
    const int depth_max_ = google::protobuf::io::CodedInputStream::GetDefaultRecursionLimit();
    bool is_over_ = false;
};

}  // namespace

const Layout& layout_of(const Descriptor& type) { return Layouts::all().of(type); }

std::size_t unmeasured_bytes(const Layout& layout) {
    return layout.is_flat() ? unmeasured_bytes_max : 0;
}

std::size_t measure(const Layout& layout, ByteView body, std::size_t most, std::size_t* hidden) {
    Walk walk(body, most);
    walk.whole(layout);
    if (walk.spent() > most) return too_large;
    if (hidden) *hidden += walk.hidden();
    return walk.spent();
}

}  // namespace weft::detail
