import { assert, describe, it } from "@effect/vitest"
import { Result } from "effect"
import { parseUrl } from "../../src/transport/internal/connectorUrl.ts"
import { readSettings } from "../../src/transport/internal/sharedFile/settings.ts"
import { listenerUrl, parseFileUrl, rootOf } from "../../src/transport/internal/sharedFile/url.ts"
import { fixture } from "./support.ts"

const settingOf = (result: Result.Result<unknown, { readonly reason: object }>) =>
  Result.match(result, {
    onSuccess: () => "none",
    onFailure: ({ reason }) => ("setting" in reason ? reason.setting : reason)
  })

describe("shared-file URLs", () => {
  it("lead where the reference finds them", () => {
    for (const { error, path, url } of fixture("transport/shared_file_urls.json").cases) {
      const parsed = parseFileUrl(url)
      if (error === undefined) {
        assert.deepStrictEqual(parsed, Result.succeed(path), url)
      } else {
        assert.strictEqual(settingOf(parsed), "url", url)
      }
    }
  })

  it("split into parameters as the reference splits them", () => {
    for (const { params, url } of fixture("transport/parse_url.json").cases) {
      assert.deepStrictEqual(Object.fromEntries(parseUrl(url)), params, url)
    }
    assert.strictEqual(parseUrl("tcp://h:1?a=%C3%A9%ff+%zz").get("a"), "é\ufffd %zz")
    assert.strictEqual(parseUrl("http://h/p/q;x?y=1").get("params"), "x")
  })

  it("of a listener carry the tuning of its resources", () => {
    for (const name of ["shared_file_session", "shared_file_rotation"]) {
      const { resources, url } = fixture(`transport/${name}.json`)
      const directory = url.slice("shared-file://0".length).replace(/\?.*/, "")
      assert.strictEqual(listenerUrl(directory, resources), url)
    }
    const resources = {
      file_mode: 0o640,
      fsync: true,
      poll_interval: 1e-7,
      dir_mode: "0o750",
      other: 1,
      max_log_size: 1e6
    }
    const url = listenerUrl("/a b", resources)
    assert.strictEqual(
      url,
      "shared-file://0/a b?poll_interval=1e-7&max_log_size=1000000&fsync=True&file_mode=640&dir_mode=0o750"
    )
    const settings = Result.getOrThrow(readSettings(url, undefined))
    assert.deepStrictEqual(
      [settings.pollInterval, settings.maxLogSize, settings.fsync, settings.fileMode, settings.dirMode],
      [1, 1_000_000, true, 0o640, 0o750]
    )
  })

  it("settings have the reference's defaults, and resources come before the query", () => {
    assert.deepStrictEqual(Result.getOrThrow(readSettings("shared-file", {})), {
      pollInterval: 10,
      maxPollInterval: 2000,
      maxLogSize: 1073741824,
      leaseInterval: 15_000,
      leaseTimeout: 60_000,
      fsync: false,
      fileMode: 0o660,
      dirMode: 0o770
    })
    const url = "shared-file://0/a?poll_interval=3&max_poll_interval=1&lease_timeout=5&max_log_size=1e3&fsync=Y"
    const settings = Result.getOrThrow(
      readSettings(url, { lease_timeout: "7", fsync: "no", connection_security: "clear" })
    )
    assert.strictEqual(settings.leaseTimeout, 7000)
    assert.strictEqual(settings.maxPollInterval, 3000, "never below poll_interval")
    assert.strictEqual(settings.maxLogSize, 1000)
    assert.isFalse(settings.fsync)
  })

  it("settings that can't work name themselves", () => {
    for (const [name, value] of [
      ["poll_interval", "soon"],
      ["max_poll_interval", -1],
      ["lease_interval", 0],
      ["lease_timeout", Number.NaN],
      ["max_log_size", "nan"],
      ["file_mode", "rw"],
      ["dir_mode", "888"],
      ["dir_mode", true]
    ] as const) {
      assert.strictEqual(settingOf(readSettings("shared-file", { [name]: value })), name)
    }
    for (const resources of [{ secure: true }, { connection_security: "mtls" }, { secure: "yes" }]) {
      assert.strictEqual(settingOf(readSettings("shared-file", resources)), "secure")
    }
    assert.strictEqual(settingOf(readSettings("shared-file", { secure: true, connection_security: "clear" })), "none")
    for (const root of [undefined, "", 5, "/a?b", "/a#b", "/a\nb"]) {
      assert.strictEqual(settingOf(rootOf(root === undefined ? {} : { root_dir: root })), "root_dir", String(root))
    }
    assert.deepStrictEqual(rootOf({ root_dir: "/a/../b//c d/" }), Result.succeed("/b/c d"))
  })
})
