// Texts from users and files: addresses, group files, WEFT_ variables, the names of sm.
#include <algorithm>
#include <string>

#include <google/protobuf/stubs/logging.h>

#include <weft/group.h>

#include "api/environment.h"
#include "base/text.h"
#include "fuzz/fuzz.h"
#include "na/address.h"
#include "na/sm/names.h"
#include "na/socket_name.h"

using namespace weft;
using fuzz::must;

static void check_address(std::string_view text) {
    const Result<na::Address> address = na::parse_address(text);
    if (!address) {
        must(address.status().code() == Code::invalid_argument, "a bad address is the caller's");
        must(address.status().text().size() < 1024, "the error text is one line");
        return;
    }
    must(text.size() <= 400, "an address is short");
    const Result<na::Address> again = na::parse_address(address->uri());
    must(again.ok() && *again == *address, "an address is what it prints");
    must(address->name.empty() != address->host.empty() || address->name.empty(),
         "a name or a host");
    if (address->scheme == "sm") {
        must(address->name.find('/') == std::string::npos && address->name.front() != '.',
             "a name of sm leads nowhere else");
        must(na::sm::socket_address("/run/user/1000/weft", address->name + ".sock").ok(),
             "a name of sm fits a socket's");
    }
    if (const auto name = na::SocketName::from_numeric(address->host, address->port)) {
        must(name->port() == address->port, "a port is kept");
        must(na::SocketName::from_numeric(name->host(), name->port())->text() == name->text(),
             "a numeric host is what it prints");
    }
}

static void check_view(const GroupView& view) {
    must(view.size() > 0 && view.size() <= GroupView::members_max && !view.name().empty(),
         "a group has a name and members");
    std::vector<Member> members = view.members();
    for (std::size_t i = 0; i < members.size(); ++i) {
        must(i == 0 || members[i].rank > members[i - 1].rank, "ranks are in order, once each");
        must(view.find(members[i].rank) == &view.members()[i], "a rank is found");
        must(!members[i].uris.empty(), "a member has an address");
        for (const std::string& uri : members[i].uris) {
            must(na::parse_address(uri).ok(), "an address is one");
        }
    }
    // The same view in any order of members; another view in another epoch.
    std::reverse(members.begin(), members.end());
    const auto same = GroupView::make(view.name(), view.epoch(), members);
    must(same.ok() && same->digest() == view.digest(), "a view is the same in any order");
    const auto later = GroupView::make(view.name(), view.epoch() + 1, members);
    must(later.ok() && later->digest() != view.digest(), "an epoch is another view");
    const auto read = GroupView::parse(view.to_json());
    must(read.ok() && read->digest() == view.digest(), "a view reads what it writes");
    const auto decoded = GroupView::decode(view.encode());
    must(decoded.ok() && decoded->digest() == view.digest(), "a view decodes what it encodes");
}

static void check_group(std::string_view text) {
    for (const auto& read : {GroupView::parse, GroupView::decode}) {
        const Result<GroupView> view = read(text);
        if (view) {
            check_view(*view);
            continue;
        }
        must(view.status().code() == Code::invalid_argument, "a bad view is the caller's");
        must(view.status().text().find('\n') == std::string_view::npos ||
                 text.find('\n') != text.npos,
             "one line says what is wrong");
    }
}

static void check_variable(std::string text) {
    text = "WEFT_" + text.substr(0, text.find('\0'));
    char* environment[] = {text.data(), nullptr};
    const Result<api::EffectiveOptions> read = api::overlay_environment({}, environment);
    const Status status = read.status();
    if (read) {
        must(api::validate_options(read->options).ok(), "an accepted variable is a valid option");
        must(read->warning.find('\n') == std::string::npos, "a warning is one line");
    } else {
        must(status.code() == Code::invalid_argument, "a bad variable is the caller's");
        must(status.text().find(text.substr(0, text.find('='))) != std::string_view::npos,
             "a bad variable is named");
    }
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const google::protobuf::LogSilencer no_complaints;  // For text that is not UTF-8.
    fuzz::Input input(data, size);
    const std::uint8_t which = input.byte();
    const std::vector<std::byte> bytes = fuzz::exact(input.rest());
    const std::string_view text = as_text(bytes);
    const std::string printed = base::printable(text);
    must(base::is_utf8(printed) && base::printable(printed) == printed, "printable text is UTF-8");
    switch (which % 3) {
        case 0: check_address(text); break;
        case 1: check_group(text); break;
        default: check_variable(std::string(text));
    }
    return 0;
}
