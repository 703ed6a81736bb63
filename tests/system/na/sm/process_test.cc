// sm between processes: death, names, sleeping, and many connections.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "na/sm/names.h"
#include "support/capability.h"
#include "support/sm_node.h"
#include "support/test_timeout.h"

using namespace weft;
using namespace weft::test;
using na::EventKind;

namespace {

// A child process that runs `body` until it is killed. `body` reports over sm or with `ready`.
class Child {
  public:
    template <class Body>
    explicit Child(Body&& body) {
        int pipes[2];
        REQUIRE(::pipe2(pipes, O_CLOEXEC) == 0);
        base::UniqueFd read(pipes[0]), write(pipes[1]);
        pid_ = ::fork();
        REQUIRE(pid_ >= 0);
        if (pid_ == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            read.reset();
            body([&write] { (void)!::write(write.get(), "r", 1); });
            ::_exit(0);
        }
        write.reset();
        char byte = 0;
        ready_ = ::read(read.get(), &byte, 1) == 1;
    }
    ~Child() { kill(); }

    // Whether the child has called ready().
    bool is_ready() const { return ready_; }
    void kill() {
        if (pid_ <= 0) return;
        ::kill(pid_, SIGKILL);
        ::waitpid(std::exchange(pid_, 0), nullptr, 0);
    }
    pid_t pid() const { return pid_; }

  private:
    pid_t pid_ = 0;
    bool ready_ = false;
};

// Serves `name` and echoes every message until killed.
template <class Ready>
void serve_echo(const std::string& name, Ready&& ready) {
    SmNode node(name);
    ready();
    while (true) {
        node.turn();
        for (const Seen& one : node.seen) {
            if (one.event.kind == EventKind::message) node.send(one.event.peer, one.bytes);
        }
        node.seen.clear();
        node.endpoint->flush();
    }
}

bool is_readable(int fd, Duration wait) {
    pollfd one{fd, POLLIN, 0};
    return ::poll(&one, 1, static_cast<int>(wait / 1ms)) == 1;
}

}  // namespace

TEST_CASE("sm: a killed peer is reported within 100 ms, after its last messages") {
    const std::string name = unique_name("killed");
    Child child([&](auto ready) { serve_echo(name, ready); });
    REQUIRE(child.is_ready());
    SmNode client;
    const na::PeerId peer = client.connect(name);
    await({&client}, client, EventKind::peer_up);
    REQUIRE(client.send(peer, "echo"));
    // The reply is in the ring before the peer dies, and is read afterwards.
    while (true) {
        na::Event none[1];
        client.endpoint->poll(std::span(none, 0), real_now());
        if (!client.endpoint->arm()) break;
    }
    child.kill();
    const TimePoint killed = real_now();
    await({&client}, client, EventKind::peer_down);
    CHECK(real_now() - killed < promised(100ms));
    REQUIRE(client.seen.size() == 1);
    CHECK(client.seen[0].bytes == "echo");
}

TEST_CASE("sm: a sleeping endpoint is woken by the death of a peer") {
    const std::string name = unique_name("killed");
    Child child([&](auto ready) { serve_echo(name, ready); });
    REQUIRE(child.is_ready());
    SmNode client;
    client.connect(name);
    await({&client}, client, EventKind::peer_up);
    while (!client.endpoint->arm()) client.turn();
    child.kill();
    REQUIRE(is_readable(client.endpoint->wait_fd(), promised(100ms)));
    // There may be other causes of the wakeup; peer_down must follow.
    await({&client}, client, EventKind::peer_down);
}

TEST_CASE("sm: a fence completes when the peer is killed in the middle of a copy") {
    const std::string name = unique_name("copying");
    SmNode server(name);
    Buffer buffer = *server.arena->allocate(1 << 20);
    REQUIRE(server.endpoint->expose({3, 1, 1, buffer.bytes(), Access::read_write}).ok());
    for (int round = 0; round < 20; ++round) {
        Child child([&](auto ready) {
            SmNode client;
            const na::PeerId peer = client.connect(name);
            Buffer local = *client.arena->allocate(1 << 20);
            ready();
            while (!client.find(EventKind::peer_up)) client.turn();
            const na::RmaItem item{na::RmaKind::put, peer, 3, 1, 1, {}, 0, local.bytes(), 0};
            while (true) {
                client.endpoint->post({&item, 1});
                client.seen.clear();
                client.turn();
            }
        });
        REQUIRE(child.is_ready());
        await({&server}, server, EventKind::peer_up);
        child.kill();
        await({&server}, server, EventKind::peer_down);
    }
    server.endpoint->fence(3, na::Holders::lost);
    await({&server}, server, EventKind::region_fenced, promised(100ms));
}

TEST_CASE("sm: no write arrives after a fence while peers keep writing") {
    const std::string name = unique_name("race");
    SmNode server(name);
    constexpr std::size_t bytes = 512 * 1024;
    Buffer buffer = *server.arena->allocate(bytes);
    Child child([&](auto ready) {
        SmNode client;
        const na::PeerId peer = client.connect(name);
        Buffer local = *client.arena->allocate(bytes);
        std::memset(local.data(), 0xff, bytes);
        ready();
        while (!client.find(EventKind::peer_up)) client.turn();
        for (std::uint32_t generation = 1;;) {
            const na::RmaItem item{na::RmaKind::put, peer, 0, generation, 1, {}, 0,
                                   local.bytes(),    0};
            client.endpoint->post({&item, 1});
            client.seen.clear();
            while (!client.find(EventKind::rma_done)) client.turn();
            const Seen done = client.take(EventKind::rma_done);
            // Refused: tries the next generation.
            if (done.event.code != Code::ok) ++generation;
            if (generation > 100'000) generation = 1;
            // The owner sends the live one.
            if (const Seen* word = client.find(EventKind::message)) {
                generation = static_cast<std::uint32_t>(std::atoi(word->bytes.c_str()));
            }
        }
    });
    REQUIRE(child.is_ready());
    const na::PeerId peer = await({&server}, server, EventKind::peer_up).event.peer;
    int cut = 0;
    // With one cpu for each process most are cut; on a busy machine the first one may take longer.
    const TimePoint deadline = real_now() + test_timeout;
    for (std::uint32_t generation = 1; generation <= 300 || (cut == 0 && real_now() < deadline);
         ++generation) {
        const na::Exposure exposure{0, generation, 1, buffer.bytes(), Access::write};
        REQUIRE(server.endpoint->expose(exposure).ok());
        server.send(peer, std::to_string(generation));
        server.endpoint->flush();
        const TimePoint end = real_now() + 100ms;
        volatile std::byte* first = buffer.data();
        volatile std::byte* last = buffer.data() + bytes - 1;
        // Fences in the middle of a copy: the first byte has arrived, the last one usually not.
        while (*first == std::byte{0} && real_now() < end) {
        }
        server.endpoint->fence(0, na::Holders::lost);
        await({&server}, server, EventKind::region_fenced);
        cut += *first != std::byte{0} && *last == std::byte{0};
        std::memset(buffer.data(), 0, bytes);
        for (int i = 0; i < 20; ++i) server.turn();
        for (std::size_t at = 0; at < bytes; at += 64) REQUIRE(buffer.data()[at] == std::byte{0});
    }
    CHECK(cut > 0);
}

TEST_CASE("sm: the name of a killed server can be taken over, that of a live one not") {
    const std::string name = unique_name("name");
    Child child([&](auto ready) { serve_echo(name, ready); });
    REQUIRE(child.is_ready());
    SmNode other;
    const Status taken = other.open(name, 10).status();
    CHECK(taken.code() == Code::already_exists);
    CHECK(taken.text().find("sm://" + name) != std::string::npos);
    child.kill();
    SmNode successor(name);
    const na::PeerId peer = other.connect(name);
    await({&other, &successor}, other, EventKind::peer_up);
    CHECK(other.endpoint->info(peer) != nullptr);
}

TEST_CASE("sm: a process can't serve a name twice, and a closed name is free at once") {
    const std::string name = unique_name("name");
    auto first = std::make_unique<SmNode>(name);
    SmNode other;
    CHECK(other.open(name, 10).status().code() == Code::already_exists);
    first.reset();
    const std::string path = *na::sm::names_directory() + "/" + name;
    CHECK(!std::filesystem::exists(path + ".sock"));
    CHECK(!std::filesystem::exists(path + ".lock"));
    SmNode second(name);
    CHECK(second.endpoint->address() == "sm://" + name);
}

TEST_CASE("sm: exactly one of several processes that compete for a name holds it at a time") {
    const std::string name = unique_name("race");
    auto* holders = static_cast<std::atomic<int>*>(
        ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    REQUIRE(holders != MAP_FAILED);
    std::vector<pid_t> children;
    for (int i = 0; i < 3; ++i) {
        const pid_t child = ::fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            int held = 0;
            for (int tries = 0; tries < 100'000 && held < 300; ++tries) {
                Result<na::sm::Listening> mine = na::sm::Listening::open(name);
                if (!mine) continue;
                if (holders->fetch_add(1) != 0) ::_exit(1);
                ++held;
                holders->fetch_sub(1);
            }
            ::_exit(0);
        }
        children.push_back(child);
    }
    for (const pid_t child : children) {
        int status = -1;
        REQUIRE(::waitpid(child, &status, 0) == child);
        CHECK(status == 0);
    }
    ::munmap(holders, 4096);
}

TEST_CASE("sm: a forked child that destroys the endpoint leaves its parent's connections alone") {
    const std::string name = unique_name("forked");
    auto server = std::make_unique<SmNode>(name);
    SmNode client;
    client.connect(name);
    await({&client, server.get()}, client, EventKind::peer_up);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        server.reset();
        ::_exit(0);
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    for (int i = 0; i < 1000; ++i) client.turn();
    CHECK(client.find(EventKind::peer_down) == nullptr);
    SmNode another;
    another.connect(name);
    await({&another, server.get()}, another, EventKind::peer_up);
}

// A server that may open `free` more descriptors and serves for ever.
[[noreturn]] static void serve_with_few_files(const std::string& name, rlim_t free, auto ready) {
    SmNode server(name);
    // A sanitizer checks each type once, through a pipe for which later no descriptor is left.
    server.turn();
    server.endpoint->arm();
    const int next = ::dup(0);  // The lowest free descriptor is the first forbidden one.
    ::close(next);
    const auto end = static_cast<rlim_t>(next) + free;
    const rlimit few{end, end};
    if (::setrlimit(RLIMIT_NOFILE, &few) != 0) ::_exit(1);
    ready();
    while (true) {
        server.turn();
        if (server.endpoint->arm()) is_readable(server.endpoint->wait_fd(), 10s);
    }
}

// The client gets the reason and keeps retrying.
static void wait_for_want_of_files(SmNode& client, na::PeerId server) {
    turn_until({&client}, [&] {
        return client.endpoint->why_waiting(server).find("file descriptor") != std::string::npos;
    });
    CHECK(client.find(EventKind::peer_down) == nullptr);
}

TEST_CASE("sm: a server without free descriptors refuses as busy and can sleep again") {
    const std::string name = unique_name("files");
    Child child([&](auto ready) { serve_with_few_files(name, 0, ready); });
    REQUIRE(child.is_ready());
    {
        SmNode client;
        wait_for_want_of_files(client, client.connect(name));
    }
    // Asleep: in the kernel's poll(), not spinning.
    turn_until({}, [&] {
        std::ifstream stat("/proc/" + std::to_string(child.pid()) + "/stat");
        std::string line;
        std::getline(stat, line);
        return line.find(") S ") != std::string::npos;
    });
}

TEST_CASE("sm: a server without descriptors for a client's files refuses as busy") {
    for (const rlim_t free : {1, 2, 3}) {
        INFO(free);
        const std::string name = unique_name("few-files");
        Child child([&](auto ready) { serve_with_few_files(name, free, ready); });
        REQUIRE(child.is_ready());
        SmNode client;
        wait_for_want_of_files(client, client.connect(name));
    }
}

TEST_CASE("sm: a names directory that other users can access or that is a link is refused") {
    const std::string root = "/tmp/" + unique_name("dir");
    REQUIRE(::mkdir(root.c_str(), 0700) == 0);
    const char* before = std::getenv("XDG_RUNTIME_DIR");
    const std::string saved = before ? before : "";
    ::setenv("XDG_RUNTIME_DIR", root.c_str(), 1);
    const Result<std::string> good = na::sm::names_directory();
    REQUIRE(good.ok());
    CHECK(*good == root + "/weft");
    REQUIRE(::chmod(good->c_str(), 0755) == 0);
    const Result<std::string> open_to_others = na::sm::names_directory();
    CHECK(open_to_others.status().code() == Code::permission_denied);
    std::filesystem::remove(root + "/weft");
    REQUIRE(::symlink("/tmp", (root + "/weft").c_str()) == 0);
    CHECK(na::sm::names_directory().status().code() == Code::permission_denied);
    if (before) {
        ::setenv("XDG_RUNTIME_DIR", saved.c_str(), 1);
    } else {
        ::unsetenv("XDG_RUNTIME_DIR");
    }
    std::filesystem::remove_all(root);
}

TEST_CASE("sm: sleepers are woken by messages, and none is missed") {
    const std::string name = unique_name("sleep");
    Child child([&](auto ready) {
        SmNode node(name);
        ready();
        while (true) {
            node.turn();
            for (const Seen& one : node.seen) {
                if (one.event.kind == EventKind::message) node.send(one.event.peer, one.bytes);
            }
            node.seen.clear();
            node.endpoint->flush();
            if (node.endpoint->arm()) is_readable(node.endpoint->wait_fd(), 10s);
        }
    });
    REQUIRE(child.is_ready());
    SmNode client;
    const na::PeerId peer = client.connect(name);
    await({&client}, client, EventKind::peer_up);
    for (int i = 0; i < 2000; ++i) {
        REQUIRE(client.send(peer, std::to_string(i)));
        client.endpoint->flush();
        while (!client.find(EventKind::message)) {
            if (client.endpoint->arm())
                REQUIRE(is_readable(client.endpoint->wait_fd(), test_timeout));
            client.turn();
        }
        REQUIRE(client.take(EventKind::message).bytes == std::to_string(i));
    }
}

TEST_CASE("sm: an endpoint with many peers receives from each of them") {
    const std::string name = unique_name("many");
    SmNode server(name);
    SmNode clients;  // One endpoint, many connections.
    constexpr std::size_t count = 100;
    std::vector<na::PeerId> peers;
    for (std::size_t i = 0; i < count; ++i) peers.push_back(clients.connect(name));
    turn_until({&server, &clients},
               [&] { return server.seen.size() + clients.seen.size() == 200; });
    for (int i = 0; i < 3000; ++i) server.turn();  // All connections become idle.
    clients.seen.clear();
    base::SeededRandom random(7);
    for (int i = 0; i < 2000; ++i) {
        server.seen.clear();
        REQUIRE(clients.send(peers[random.next() % count], "hello"));
        clients.endpoint->flush();
        turn_until({&server}, [&] { return !server.seen.empty(); });
        REQUIRE(server.seen[0].bytes == "hello");
        REQUIRE(server.send(server.seen[0].event.peer, "answer"));
        server.endpoint->flush();
    }
    turn_until({&clients}, [&] { return clients.seen.size() == 2000; });
    for (const na::PeerId& peer : peers) clients.endpoint->close(peer);
    turn_until({&server, &clients}, [&] { return server.seen.size() >= count; });
}

TEST_CASE("sm: a flooding peer does not starve the others") {
    const std::string name = unique_name("flood");
    SmNode server(name);
    SmNode flooder, quiet;
    const na::PeerId flood = flooder.connect(name);
    const na::PeerId calm = quiet.connect(name);
    turn_until({&server, &flooder, &quiet}, [&] { return server.seen.size() == 2; });
    turn_until({&quiet, &flooder}, [&] { return !quiet.seen.empty() && !flooder.seen.empty(); });
    const auto fill = [&] {
        while (flooder.send(flood, "noise")) {
        }
        flooder.endpoint->flush();
    };
    fill();
    for (int i = 0; i < 50; ++i) {
        REQUIRE(quiet.send(calm, "word"));
        quiet.endpoint->flush();
        server.seen.clear();
        for (int polls = 0; polls < 2; ++polls) {
            server.turn();
            fill();
        }
        REQUIRE(std::any_of(server.seen.begin(), server.seen.end(),
                            [](const Seen& one) { return one.bytes == "word"; }));
    }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("sm: messages in both directions make no system call") {
    constexpr int is_filtered = 7;  // Strict mode forbids further prctl() calls.
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        SmPair pair;
        Buffer remote = *pair.server.arena->allocate(4096);
        Buffer local = *pair.client.arena->allocate(4096);
        if (!pair.server.endpoint->expose({0, 1, 1, remote.bytes(), Access::read}).ok()) ::_exit(9);
        na::RmaItem item{na::RmaKind::get, pair.at_client, 0, 1, 1, {}, 0, local.bytes(), 0};
        const TimePoint now = real_now();
        na::Event events[8];
        const auto round = [&] {
            if (!pair.client.send(pair.at_client, "ping")) return false;
            pair.client.endpoint->flush();
            if (pair.server.endpoint->poll(events, now) != 1) return false;
            if (!pair.server.send(pair.at_server, "pong")) return false;
            pair.server.endpoint->flush();
            if (pair.client.endpoint->poll(events, now) != 1) return false;
            if (pair.client.endpoint->post({&item, 1}) != 1) return false;
            return pair.client.endpoint->poll(events, now) == 1;
        };
        if (!round()) ::_exit(8);  // Maps the peer's arena.
        // From here on only read, write and exit are allowed; any other call is a SIGKILL.
        if (::prctl(PR_SET_SECCOMP, 1) != 0) ::_exit(is_filtered);
        for (int i = 0; i < 20'000; ++i) {
            if (!round()) ::syscall(60, 1);
        }
        ::syscall(60, 0);  // exit(); exit_group() is not allowed.
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == is_filtered) {
        return note_capability("sm", "its system calls can't be counted under a seccomp filter");
    }
    CHECK(status == 0);
}
#endif
