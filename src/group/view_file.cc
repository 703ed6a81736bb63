// Views out of group files.
#include <weft/group.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include <google/protobuf/util/json_util.h>

#include <weft/group.pb.h>

#include "base/text.h"
#include "base/unique_fd.h"

namespace weft {

// Enough for a view's most members with two addresses each; more is no group file.
static constexpr std::size_t file_bytes_max = 256u << 20;

static Status malformed(std::string_view why) {
    return fail(Code::invalid_argument, "group file: " + base::printable(why));
}

Result<GroupView> GroupView::parse(std::string_view json) {
    GroupFile file;
    google::protobuf::util::JsonParseOptions options;
    options.ignore_unknown_fields = false;
    const auto parsed =
        google::protobuf::util::JsonStringToMessage({json.data(), json.size()}, &file, options);
    if (!parsed.ok()) {
        // Protobuf shows the text around a syntax error on lines of its own.
        const std::string message(parsed.message());
        return malformed(message.substr(0, message.find('\n')));
    }
    if (!file.has_epoch()) return malformed("no epoch");
    std::vector<Member> members;
    for (GroupFile::Member& member : *file.mutable_members()) {
        if (!member.has_rank()) {
            return malformed("member " + std::to_string(members.size()) + " has no rank");
        }
        members.push_back({member.rank(), {member.uris().begin(), member.uris().end()}});
    }
    return make(file.name(), file.epoch(), std::move(members));
}

static Status unreadable(const std::string& path) {
    const Code code = errno == ENOENT   ? Code::not_found
                      : errno == EACCES ? Code::permission_denied
                                        : Code::failed_precondition;
    return fail(code, "can't read the group file '" + path +
                          "': " + std::generic_category().message(errno));
}

static Result<std::string> read_file(const std::string& path) {
    // A fifo without a writer would be waited for.
    const base::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd) return unreadable(path);
    std::string text;
    char piece[1 << 16];
    while (true) {
        const ssize_t got = ::read(fd.get(), piece, sizeof piece);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return unreadable(path);
        if (got == 0) return text;
        text.append(piece, static_cast<std::size_t>(got));
        if (text.size() > file_bytes_max) {
            return fail(Code::invalid_argument, "'" + path + "' is too large for a group file");
        }
    }
}

Result<GroupView> GroupView::load(const std::string& path) {
    const Result<std::string> text = read_file(path);
    if (!text) return text.status();
    Result<GroupView> view = parse(*text);
    if (!view) return std::move(view).status().in("'" + path + "'");
    return view;
}

}  // namespace weft
