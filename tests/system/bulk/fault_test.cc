// Inaccessible memory of the program in calls and transfers: one operation is refused, and the
// process, the connection and all other operations continue.
#include <sys/mman.h>
#include <unistd.h>

#include "api/runtime_impl.h"
#include "base/unique_fd.h"
#include "base/user_memory.h"
#include "support/hold_server.h"
#include "support/private_memory.h"
#include "support/raw_echo.h"
#include "support/test_timeout.h"
#include "support/usable.h"

using namespace weft;
using namespace weft::test;

namespace {

constexpr std::size_t page = 4096;

// Two pages; the second one is made read-only, unmapped or cut off from its file.
struct Pages {
    base::UniqueFd file;
    Bytes memory;
    enum class Second { read_only, unmapped, cut };
    explicit Pages(Second second) {
        if (second == Second::cut) {
            file.reset(::memfd_create("weft-test", MFD_CLOEXEC));
            REQUIRE(::ftruncate(file.get(), 2 * page) == 0);
        }
        const int flags = file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
        void* at = ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, flags, file.get(), 0);
        REQUIRE(at != MAP_FAILED);
        memory = {static_cast<std::byte*>(at), 2 * page};
        if (file) {
            REQUIRE(::ftruncate(file.get(), page) == 0);
        } else {
            const int access = second == Second::read_only ? PROT_READ : PROT_NONE;
            REQUIRE(::mprotect(memory.data() + page, page, access) == 0);
        }
    }
    Pages(const Pages&) = delete;
    ~Pages() { ::munmap(memory.data(), memory.size()); }
    Buffer buffer() const {
        return Buffer::adopt(memory, [] {});
    }
};

constexpr MethodId poke("test.Fault/Poke");

// Reads or writes a byte of the caller's memory at an offset, and replies with the status code.
struct Poker final : Service {
    Runtime* runtime = nullptr;
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(poke, [this](Call call) {
            auto held = std::make_shared<Call>(std::move(call));
            const ByteView request = held->request();
            const RegionRef ref = RegionRef::decode(request.first(48)).value();
            std::uint64_t offset = 0;
            std::memcpy(&offset, request.data() + 48, sizeof offset);
            const bool put = request[56] != std::byte{0};
            Buffer one = runtime->allocate(1).value();
            one.bytes()[0] = std::byte{9};
            const auto done = [held](const Status& status) {
                const auto code = static_cast<std::byte>(status.code());
                held->reply({&code, 1});
            };
            put ? held->put(ref, offset, one, done) : held->get(ref, offset, one, done);
        });
    }
};

struct Rig {
    Poker service;
    RuntimeOptions manual{.wait = WaitMode::spin, .log_level = LogLevel::off, .manual = true};
    Runtime server = Runtime::create(manual).value();
    Runtime client = Runtime::create(manual).value();
    Channel channel;
    explicit Rig(const std::string& scheme) {
        service.runtime = &server;
        static int count = 0;
        const std::string name = std::to_string(::getpid()) + "-" + std::to_string(++count);
        const std::string uri = scheme == "sm"     ? "sm://fault-" + name
                                : scheme == "unix" ? "unix:///tmp/weft-fault-" + name
                                                   : scheme + "://127.0.0.1:0";
        REQUIRE(server.serve(service, uri).ok());
        channel = client.connect(server.addresses().front()).value();
    }
    bool turn_until(const std::function<bool()>& done) {
        return client.turn_until(
            [&] {
                server.turn();
                return done();
            },
            test_timeout);
    }
    // Returns the status code of the transfer in the server's handler.
    Code poke_at(const RegionRef& ref, std::uint64_t offset, bool put, bool inline_bulk) {
        std::vector<std::byte> request(57);
        ref.encode(std::span<std::byte, 48>(request.data(), 48));
        std::memcpy(request.data() + 48, &offset, sizeof offset);
        request[56] = std::byte{put};
        CallOutcome outcome;
        CallOptions options{.timeout = test_timeout};
        if (inline_bulk) options.inline_bulk = &ref;
        channel.call(poke, request, options, outcome.done());
        REQUIRE(turn_until([&] { return outcome.completions == 1; }));
        REQUIRE(outcome.status.ok());
        return static_cast<Code>(outcome.reply.at(0));
    }
    Status transfer(bool put, const RegionRef& ref, std::uint64_t offset, Buffer local) {
        std::optional<Status> ended;
        const auto done = [&](const Status& status) { ended = status; };
        put ? channel.put(ref, offset, std::move(local), {.timeout = test_timeout}, done)
            : channel.get(ref, offset, std::move(local), {.timeout = test_timeout}, done);
        REQUIRE(turn_until([&] { return ended.has_value(); }));
        return *ended;
    }
};

}  // namespace

TEST_CASE("copy_to_user() and copy_from_user() fail on inaccessible memory") {
    for (const auto second :
         {Pages::Second::read_only, Pages::Second::unmapped, Pages::Second::cut}) {
        const Pages pages(second);
        std::vector<std::byte> other(2 * page, std::byte{1});
        const bool readable = second == Pages::Second::read_only;
        CHECK_FALSE(base::copy_to_user(pages.memory, other));
        CHECK(base::copy_to_user(pages.memory.first(page), ByteView(other).first(page)));
        CHECK(base::copy_from_user(pages.memory, other) == readable);
        CHECK(base::copy_from_user(pages.memory.first(page), other));
        CHECK_FALSE(base::is_accessible(pages.memory.subspan(page - 1, 2), true));
        CHECK(base::is_accessible(pages.memory.first(page), true));
        CHECK(base::is_accessible(pages.memory, false) == readable);
    }
}

TEST_CASE("a transfer to inaccessible exposed memory is refused, and its owner survives") {
    const std::string scheme = GENERATE(as<std::string>(), "sm", "unix", "tcp", "ofi+tcp");
    if (!is_usable(scheme) || (scheme == "sm" && !has_private_memory())) return;
    INFO(scheme);
    Rig rig(scheme);
    for (const auto second :
         {Pages::Second::read_only, Pages::Second::unmapped, Pages::Second::cut}) {
        const bool readable = second == Pages::Second::read_only;
        const Pages pages(second);
        // The server's handler accesses the client's memory, then the client accesses the server's.
        Region of_client = rig.client.expose(pages.buffer(), {Access::read_write}).value();
        Region of_server = rig.server.expose(pages.buffer(), {Access::read_write}).value();
        for (const bool inline_bulk : {false, true}) {
            INFO(int(second) << (inline_bulk ? ", inline bulk" : ""));
            CHECK(rig.poke_at(of_client.ref(), page, true, inline_bulk) ==
                  Code::failed_precondition);
            CHECK(rig.poke_at(of_client.ref(), page, false, inline_bulk) ==
                  (readable ? Code::ok : Code::failed_precondition));
            CHECK(rig.poke_at(of_client.ref(), 8, true, inline_bulk) == Code::ok);
        }
        Buffer one = rig.client.allocate(1).value();
        const Status status = rig.transfer(true, of_server.ref(), page, one);
        CHECK(status.code() == Code::failed_precondition);
        CHECK(status.text().find("can't be written") != std::string_view::npos);
        CHECK(rig.transfer(false, of_server.ref(), page, one).ok() == readable);
        CHECK(rig.transfer(true, of_server.ref(), 8, one).ok());
    }
}

TEST_CASE("an inaccessible local buffer fails its own transfer only") {
    const std::string scheme = GENERATE(as<std::string>(), "sm", "unix", "tcp", "ofi+tcp");
    if (!is_usable(scheme) || (scheme == "sm" && !has_private_memory())) return;
    INFO(scheme);
    Rig rig(scheme);
    Region region =
        rig.server.expose(rig.server.allocate(2 * page).value(), {Access::read_write}).value();
    for (const auto second :
         {Pages::Second::read_only, Pages::Second::unmapped, Pages::Second::cut}) {
        const Pages pages(second);
        for (const bool put : {true, false}) {
            INFO(int(second) << (put ? ", put" : ", get"));
            const Status status = rig.transfer(put, region.ref(), 0, pages.buffer());
            const bool fine = put && second == Pages::Second::read_only;
            CHECK(status.code() == (fine ? Code::ok : Code::failed_precondition));
            if (!fine) CHECK(status.text().find("local buffer") != std::string_view::npos);
            Buffer good = rig.client.allocate(2 * page).value();
            CHECK(rig.transfer(put, region.ref(), 0, good).ok());
        }
    }
}
