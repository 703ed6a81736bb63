// Views as the text of group files.
#include <weft/group_view.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <utility>

#include <google/protobuf/util/json_util.h>

#include <weft/group.pb.h>

#include "base/text.h"
#include "base/unique_fd.h"
#include "group/file_error.h"
#include "group/limits.h"
#include "group/read_whole.h"

namespace weft {

static Status malformed(std::string_view why) {
    return fail(Code::invalid_argument, "group file: " + base::printable(why));
}

// Protobuf's message about a value of the wrong type, with the expected values.
static std::string with_range(std::string message) {
    static constexpr std::pair<std::string_view, std::string_view> types[] = {
        {" for type TYPE_UINT32", ": expected a whole number from 0 to 4294967294"},
        {" for type TYPE_UINT64", ": expected a whole number from 0 to 18446744073709551615"},
        {" for type TYPE_BOOL", ": expected true or false"},
        {" for type TYPE_STRING", ": expected a text"}};
    for (const auto& [type, range] : types) {
        const std::size_t at = message.find(type);
        if (at != message.npos) return message.replace(at, type.size(), range);
    }
    return message;
}

// Refuses too many objects before protobuf allocates them. Names may contain some of the counted
// characters, too.
static bool is_too_much(std::string_view json) {
    constexpr std::size_t named = 4 * 2;  // Quotes of the names of a member's fields.
    constexpr std::size_t aside = 2 * GroupView::name_bytes_max + 64;
    const auto count = [&](char of) {
        return static_cast<std::size_t>(std::count(json.begin(), json.end(), of));
    };
    return count('{') > GroupView::members_max + aside ||
           count('"') > GroupView::members_max * (2 * GroupView::uris_max + named) + aside;
}

Result<GroupView> GroupView::parse(std::string_view json) {
    if (json.size() > group::view_bytes_max) return malformed("too large");
    if (is_too_much(json)) return malformed("too many members or addresses");
    GroupFile file;
    google::protobuf::util::JsonParseOptions options;
    options.ignore_unknown_fields = false;
    const auto parsed =
        google::protobuf::util::JsonStringToMessage({json.data(), json.size()}, &file, options);
    if (!parsed.ok()) {
        // Protobuf shows the text around a syntax error on lines of its own.
        const std::string message(parsed.message());
        return malformed(with_range(message.substr(0, message.find('\n'))));
    }
    if (!file.has_epoch()) return malformed("no epoch");
    std::vector<Member> members;
    for (GroupFile::Member& member : *file.mutable_members()) {
        if (!member.has_rank()) {
            return malformed("member " + std::to_string(members.size()) + " has no rank");
        }
        members.push_back({member.rank(),
                           {member.uris().begin(), member.uris().end()},
                           member.incarnation(),
                           member.draining()});
    }
    return make(file.name(), file.epoch(), std::move(members));
}

static void put_text(std::string& json, std::string_view text) {
    json += '"';
    for (const char c : text) {
        if (static_cast<unsigned char>(c) < 0x20) {
            char escaped[8];
            std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
            json += escaped;
            continue;
        }
        if (c == '"' || c == '\\') json += '\\';
        json += c;
    }
    json += '"';
}

static void put_member(std::string& json, const Member& member) {
    json += "  {\"rank\":" + std::to_string(member.rank) + ",\"uris\":[";
    for (std::size_t i = 0; i < member.uris.size(); ++i) {
        if (i > 0) json += ',';
        put_text(json, member.uris[i]);
    }
    json += ']';
    if (member.incarnation != 0) json += ",\"incarnation\":" + std::to_string(member.incarnation);
    if (member.draining) json += ",\"draining\":true";
    json += '}';
}

// One line per member, so that a diff is readable.
std::string GroupView::to_json() const {
    std::string json = "{\"name\":";
    put_text(json, name());
    json += ",\"epoch\":" + std::to_string(epoch()) + ",\"members\":[\n";
    for (std::uint32_t index = 0; index < size(); ++index) {
        if (index > 0) json += ",\n";
        put_member(json, at(index));
    }
    return json + "\n]}\n";
}

static Status unreadable(const std::string& path) {
    return group::file_error("can't read the group file '" + path + "'");
}

static Result<group::Reading> read_file(const std::string& path) {
    // Without O_NONBLOCK a fifo without a writer would block.
    const base::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat before, after;
    if (!fd || ::fstat(fd.get(), &before) != 0) return unreadable(path);
    group::Reading reading;
    char piece[1 << 16];
    while (true) {
        const ssize_t got = ::read(fd.get(), piece, sizeof piece);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return unreadable(path);
        if (got == 0) break;
        reading.text.append(piece, static_cast<std::size_t>(got));
        if (reading.text.size() > group::view_bytes_max) {
            return fail(Code::invalid_argument, "'" + path + "' is too large for a group file");
        }
    }
    if (::fstat(fd.get(), &after) != 0) return unreadable(path);
    reading.is_torn = before.st_size != after.st_size ||
                      before.st_mtim.tv_sec != after.st_mtim.tv_sec ||
                      before.st_mtim.tv_nsec != after.st_mtim.tv_nsec;
    reading.is_fresh = ::time(nullptr) - after.st_mtim.tv_sec <= 1;
    return reading;
}

Result<GroupView> GroupView::load(const std::string& path) {
    const auto read = [&] { return read_file(path); };
    const auto parse = [&](const std::string& text) -> Result<GroupView> {
        Result<GroupView> view = GroupView::parse(text);
        if (!view) return std::move(view).status().in("'" + path + "'");
        return view;
    };
    const auto pause = [] { (void)::poll(nullptr, 0, group::pause_ms); };
    return group::read_whole("'" + path + "'", read, parse, pause);
}

}  // namespace weft
