import * as NodeFs from "node:fs"
import { NodeFileSystem } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { ConfigProvider, Duration, Effect, Layer, Result } from "effect"
import { PrivateFiles } from "../../src/platform/PrivateFiles.ts"
import type { ProfileError } from "../../src/trainer/ProfileError.ts"
import { profileVariable, TrainerProfile } from "../../src/trainer/TrainerProfile.ts"
import { modeOf, tempDirectory, umask } from "../platform/support.ts"

type Json = Record<string, unknown>

const shared: Json = {
  schema_version: 1,
  execution_mode: "attach",
  attach_id: "t1",
  site_name: "site-1",
  rendezvous_dir: "/shared"
}

const { rendezvous_dir: _, ...envelope } = shared
const clear: Json = { ...envelope, connect_url: "tcp://cp:8002", connection_security: "clear" }
const secure: Json = { ...envelope, connect_url: "grpcs://cp:8002", secure_mode: true, ca_cert: "/ca.pem" }

/** A base with fields changed; `undefined` takes a field away. */
const change = (base: Json, fields: Json): Json => {
  const changed = { ...base, ...fields }
  return Object.fromEntries(Object.entries(changed).filter(([, value]) => value !== undefined))
}

const good = (json: unknown): TrainerProfile => {
  const result = TrainerProfile.decode(json)
  assert(Result.isSuccess(result), Result.isFailure(result) ? result.failure.message : "")
  return result.success
}

const bad = (json: unknown): ProfileError => {
  const result = TrainerProfile.decode(json)
  assert(Result.isFailure(result), JSON.stringify(json))
  return result.failure
}

describe("TrainerProfile.decode", () => {
  it("reads a profile with a shared directory", () => {
    const profile = good({ ...shared, secure_mode: false, connection_security: null, ca_cert: null, other: [1] })
    assert.deepStrictEqual(
      { ...profile },
      { attachId: "t1", siteName: "site-1", source: { _tag: "Rendezvous", root: "/shared" }, secureMode: false }
    )
    assert.isFalse(profile.isProtected)
  })

  it("reads a profile with a URL, defaults and all", () => {
    const profile = good(clear)
    assert.deepStrictEqual(
      { ...profile },
      {
        attachId: "t1",
        siteName: "site-1",
        source: {
          _tag: "Url",
          connectUrl: "tcp://cp:8002",
          security: "clear",
          cpFqcn: "site-1",
          authIdentity: "site-1"
        },
        secureMode: false
      }
    )
    assert.isFalse(profile.isProtected)
  })

  it("reads every field of a secure profile", () => {
    const profile = good({
      ...secure,
      connection_security: "mtls",
      cp_fqcn: "relay.site-1",
      cj_fqcn: "relay.site-1.job-1",
      auth_identity: "relay-cert",
      job_wait_timeout: 2.5
    })
    assert.deepInclude(profile.source, {
      security: "mtls",
      cpFqcn: "relay.site-1",
      cjFqcn: "relay.site-1.job-1",
      authIdentity: "relay-cert"
    })
    assert.strictEqual(profile.caCert, "/ca.pem")
    assert.isTrue(profile.isProtected)
    assert(profile.jobWaitTimeout !== undefined && Duration.toMillis(profile.jobWaitTimeout) === 2500)
  })

  it("protects messages in secure mode over a clear connection, too", () => {
    const profile = good({ ...clear, secure_mode: true, ca_cert: "/ca.pem" })
    assert.isTrue(profile.isProtected)
    assert.deepInclude(profile.source, { security: "clear" })
  })

  const accepted: ReadonlyArray<readonly [string, Json]> = [
    ["a null pin", { ...clear, cj_fqcn: null }],
    ["a null identity", { ...clear, auth_identity: null }],
    ["a null timeout", { ...clear, job_wait_timeout: null }],
    ["a timeout of 0", { ...clear, job_wait_timeout: 0 }],
    ["an empty other source", { ...clear, rendezvous_dir: "" }],
    ["a null other source", { ...shared, connect_url: null }],
    ["an empty list for the other source", { ...shared, connect_url: [] }],
    ["a shared-file URL", { ...envelope, connect_url: "shared-file://0/shared/lst_1" }],
    ["a declared clear for a shared directory", { ...shared, connection_security: "clear" }],
    ["a secure scheme without a declaration", secure],
    ["a clear connection by a secure scheme", { ...clear, connect_url: "grpcs://cp:1" }],
    ["mtls by another scheme", { ...secure, connect_url: "tcp://cp:1", connection_security: "mtls" }],
    ["a certificate that isn't needed", { ...clear, ca_cert: "/ca.pem" }]
  ]

  it.each(accepted)("accepts %s", (_name, json) => {
    good(json)
  })

  /** A good profile, the change to it, and the field that is to blame. */
  const refused: ReadonlyArray<readonly [Json, Json, string]> = [
    [shared, { schema_version: undefined }, "schema_version"],
    [shared, { execution_mode: undefined }, "execution_mode"],
    [shared, { schema_version: 2 }, "schema_version"],
    [shared, { schema_version: true }, "schema_version"],
    [shared, { schema_version: "1" }, "schema_version"],
    [shared, { schema_version: null }, "schema_version"],
    [shared, { execution_mode: "external_process" }, "execution_mode"],
    [shared, { execution_mode: null }, "execution_mode"],
    [shared, { attach_id: undefined }, "attach_id"],
    [shared, { attach_id: "  " }, "attach_id"],
    [shared, { attach_id: 5 }, "attach_id"],
    [shared, { site_name: undefined }, "site_name"],
    [shared, { site_name: " " }, "site_name"],
    [shared, { secure_mode: "false" }, "secure_mode"],
    [shared, { secure_mode: null }, "secure_mode"],
    [shared, { secure_mode: 0 }, "secure_mode"],
    [shared, { cj_pid: 0 }, "cj_pid"],
    [shared, { cj_pid: true }, "cj_pid"],
    [shared, { cj_pid: 77 }, "cj_pid"],
    [shared, { attach_id: "a b" }, "attach_id"],
    [shared, { attach_id: "x".repeat(65) }, "attach_id"],
    [shared, { rendezvous_dir: undefined }, "connect_url"],
    [shared, { connect_url: "tcp://cp:1" }, "connect_url"],
    [shared, { rendezvous_dir: "shared" }, "rendezvous_dir"],
    [shared, { rendezvous_dir: 5 }, "rendezvous_dir"],
    [shared, { connection_security: "mtls" }, "connection_security"],
    [shared, { connection_security: "" }, "connection_security"],
    [shared, { cj_fqcn: null }, "cj_fqcn"],
    [shared, { cp_fqcn: null }, "cp_fqcn"],
    [shared, { auth_identity: null }, "auth_identity"],
    [shared, { secure_mode: true }, "secure_mode"],
    [shared, { ca_cert: "/ca.pem" }, "ca_cert"],
    [shared, { job_wait_timeout: -1 }, "job_wait_timeout"],
    // What JSON has for 1e400.
    [shared, { job_wait_timeout: Number.POSITIVE_INFINITY }, "job_wait_timeout"],
    [shared, { job_wait_timeout: Number.NaN }, "job_wait_timeout"],
    [shared, { job_wait_timeout: 1e300 }, "job_wait_timeout"],
    [shared, { site_name: "a/b" }, "site_name"],
    [clear, { connect_url: "  " }, "connect_url"],
    [clear, { connect_url: ["tcp://cp:1"] }, "connect_url"],
    [clear, { cp_fqcn: null }, "cp_fqcn"],
    [clear, { cp_fqcn: "a..site-1" }, "cp_fqcn"],
    [clear, { cp_fqcn: "site-2" }, "cp_fqcn"],
    [clear, { site_name: "a.b" }, "cp_fqcn"],
    [clear, { cj_fqcn: "site-2.job" }, "cj_fqcn"],
    [clear, { cj_fqcn: "site-1.x.job" }, "cj_fqcn"],
    [clear, { cj_fqcn: "" }, "cj_fqcn"],
    [clear, { connect_url: "cp.example" }, "connect_url"],
    [clear, { connect_url: "file:///shared" }, "connect_url"],
    [clear, { connect_url: "shared-file://cp/shared" }, "connect_url"],
    [clear, { connection_security: undefined }, "connection_security"],
    [clear, { connection_security: "tls" }, "connection_security"],
    [clear, { connection_security: "none" }, "connection_security"],
    [clear, { connect_url: "shared-file://0/a", connection_security: "mtls" }, "connection_security"],
    [secure, { ca_cert: " " }, "ca_cert"],
    [secure, { ca_cert: 5 }, "ca_cert"],
    [secure, { ca_cert: undefined }, "ca_cert"],
    [clear, { secure_mode: true }, "ca_cert"],
    [secure, { secure_mode: undefined }, "secure_mode"],
    [secure, { secure_mode: false }, "secure_mode"],
    [clear, { auth_identity: " " }, "auth_identity"],
    [clear, { auth_identity: 5 }, "auth_identity"],
    [clear, { job_wait_timeout: "5" }, "job_wait_timeout"],
    [clear, { job_wait_timeout: true }, "job_wait_timeout"]
  ]

  it("refuses every broken rule by the name of its field, with what it holds", () => {
    for (const [base, fields, field] of refused) {
      const error = bad(change(base, fields))
      assert.strictEqual(error.field, field, `${JSON.stringify(fields)}: ${error.message}`)
      const isSource = /^(?:neither rendezvous_dir nor connect_url|connect_url and rendezvous_dir are both)/
      if (!isSource.test(error.message))
        assert.include(error.message, `${field} is ${error.value === "undefined" ? "missing" : error.value}: `)
    }
  })

  /** Everything is wrong; each step mends one thing, and the next rule is the one to be reported. */
  const ladder = (start: Json, steps: ReadonlyArray<readonly [string, Json]>) => {
    let json = start
    for (const [field, mend] of steps) {
      const error = bad(json)
      assert.strictEqual(error.field, field, `${JSON.stringify(json)}: ${error.message}`)
      json = change(json, mend)
    }
    good(json)
  }

  it("reports the rule that the reference checks first: the envelope, then a shared directory", () => {
    const wrong = {
      schema_version: 2,
      attach_id: " ",
      site_name: 5,
      secure_mode: "yes",
      cj_pid: 0,
      connect_url: "tcp://cp:1",
      rendezvous_dir: "shared",
      connection_security: "mtls",
      cj_fqcn: null,
      cp_fqcn: "x",
      auth_identity: 5,
      ca_cert: 5,
      job_wait_timeout: "5"
    }
    ladder(wrong, [
      ["execution_mode", { execution_mode: "launch" }],
      ["schema_version", { schema_version: 1 }],
      ["execution_mode", { execution_mode: "attach" }],
      ["attach_id", { attach_id: "a b" }],
      ["site_name", { site_name: "a/b" }],
      ["secure_mode", { secure_mode: true }],
      ["cj_pid", { cj_pid: 7 }],
      ["cj_pid", { cj_pid: undefined }],
      ["attach_id", { attach_id: "t1" }],
      ["connect_url", { connect_url: "" }],
      ["rendezvous_dir", { rendezvous_dir: "/shared" }],
      ["connection_security", { connection_security: "clear" }],
      ["cj_fqcn", { cj_fqcn: undefined }],
      ["cp_fqcn", { cp_fqcn: undefined }],
      ["auth_identity", { auth_identity: undefined }],
      ["secure_mode", { secure_mode: false }],
      ["ca_cert", { ca_cert: "/ca.pem" }],
      ["ca_cert", { ca_cert: null }],
      ["job_wait_timeout", { job_wait_timeout: 5 }],
      ["site_name", { site_name: "site-1" }]
    ])
  })

  it("reports the rule that the reference checks first: a URL", () => {
    const wrong = {
      ...envelope,
      connect_url: "  ",
      connection_security: "tls",
      cp_fqcn: "a..b",
      cj_fqcn: "",
      ca_cert: " ",
      auth_identity: " ",
      job_wait_timeout: -1
    }
    ladder(wrong, [
      ["connect_url", { connect_url: "cp.example" }],
      ["cp_fqcn", { cp_fqcn: "site-2" }],
      ["cp_fqcn", { cp_fqcn: "r.site-1" }],
      ["cj_fqcn", { cj_fqcn: "r.site-1.job" }],
      ["connect_url", { connect_url: "file://0/a" }],
      ["connect_url", { connect_url: "shared-file://0/a" }],
      ["connection_security", { connect_url: "tcp://cp:1" }],
      ["connection_security", { connection_security: "mtls" }],
      ["ca_cert", { ca_cert: undefined }],
      ["ca_cert", { ca_cert: "/ca.pem" }],
      ["secure_mode", { secure_mode: true }],
      ["auth_identity", { auth_identity: "x" }],
      ["job_wait_timeout", { job_wait_timeout: null }]
    ])
  })

  it.each([[null], [[]], ["profile"], [5], [undefined]])("refuses %j, which is no object", (json) => {
    assert.strictEqual(bad(json).field, "profile")
  })

  it("refuses a file of another kind that has neither version nor mode", () => {
    const error = bad({ TASK_EXCHANGE: {} })
    assert.strictEqual(error.field, "schema_version")
    assert.include(error.message, "attach profile")
  })

  it("is not misled by the names that every object has", () => {
    assert.strictEqual(bad(JSON.parse('{"__proto__": {"schema_version": 1}}')).field, "schema_version")
  })
})

describe("TrainerProfile.encode", () => {
  it("writes what decode reads to the same profile", () => {
    const jsons = [
      shared,
      clear,
      secure,
      { ...shared, job_wait_timeout: 600 },
      { ...secure, cp_fqcn: "r.site-1", cj_fqcn: "r.site-1.j", auth_identity: "x", job_wait_timeout: 0.5 }
    ]
    for (const json of jsons) {
      const profile = good(json)
      assert.deepStrictEqual(good(TrainerProfile.encode(profile)), profile)
    }
  })

  it("leaves out what is the default", () => {
    assert.deepStrictEqual(TrainerProfile.encode(good(shared)), shared)
    assert.deepStrictEqual(TrainerProfile.encode(good({ ...clear, secure_mode: false, cp_fqcn: "site-1" })), clear)
  })
})

describe("a profile's file", () => {
  const layer = Layer.mergeAll(PrivateFiles.layerNode, NodeFileSystem.layer)
  const env = (variables: Record<string, string>) => ConfigProvider.layer(ConfigProvider.fromEnvRecord(variables))

  it.live.each([0o000, 0o077])("is written for its owner only, whatever the umask (%o), and read back", (mask) =>
    Effect.gen(function* () {
      yield* umask(mask)
      const path = `${yield* tempDirectory}/profile.json`
      const profile = good(shared)
      yield* TrainerProfile.write(path, profile)
      assert.strictEqual(modeOf(path), "600")
      assert.deepStrictEqual(yield* TrainerProfile.load(path), profile)
    }).pipe(Effect.provide(layer))
  )

  it.live("replaces a link and an older file, and keeps the older one when it refuses", () =>
    Effect.gen(function* () {
      const directory = yield* tempDirectory
      const [path, victim] = [`${directory}/profile.json`, `${directory}/victim`]
      NodeFs.writeFileSync(victim, "untouched", { mode: 0o666 })
      NodeFs.symlinkSync(victim, path)
      yield* TrainerProfile.write(path, good(shared))
      assert.isTrue(NodeFs.lstatSync(path).isFile())
      assert.strictEqual(NodeFs.readFileSync(victim, "utf8"), "untouched")
      const wrong = new TrainerProfile({ ...good(shared), source: { _tag: "Rendezvous", root: "relative" } })
      const error = yield* Effect.flip(TrainerProfile.write(path, wrong))
      assert(error._tag === "ProfileError" && error.field === "rendezvous_dir")
      assert.deepStrictEqual(JSON.parse(NodeFs.readFileSync(path, "utf8")), shared)
      assert.deepStrictEqual(NodeFs.readdirSync(directory).sort(), ["profile.json", "victim"])
    }).pipe(Effect.provide(layer))
  )

  it.live("is named in every error about it", () =>
    Effect.gen(function* () {
      const path = `${yield* tempDirectory}/profile.json`
      const missing = yield* Effect.flip(TrainerProfile.load(path))
      assert.strictEqual(missing.field, "file")
      assert.include(missing.message, path)
      NodeFs.writeFileSync(path, "{")
      const broken = yield* Effect.flip(TrainerProfile.load(path))
      assert.strictEqual(broken.field, "file")
      assert.include(broken.message, "no JSON")
      NodeFs.writeFileSync(path, JSON.stringify({ ...shared, attach_id: "a b" }))
      const refused = yield* Effect.flip(TrainerProfile.load(path))
      assert.strictEqual(refused.field, "attach_id")
      assert.include(refused.message, path)
    }).pipe(Effect.provide(layer))
  )

  it.live("is found by the environment variable", () =>
    Effect.gen(function* () {
      const path = `${yield* tempDirectory}/profile.json`
      NodeFs.writeFileSync(path, JSON.stringify(shared))
      const at = (variables: Record<string, string>) => TrainerProfile.fromEnv.pipe(Effect.provide(env(variables)))
      assert.deepStrictEqual(yield* at({ [profileVariable]: path }), good(shared))
      assert.deepStrictEqual(yield* at({ [profileVariable]: path, CLIENT_API_TYPE: "CELL_API" }), good(shared))
      assert.strictEqual((yield* Effect.flip(at({}))).field, profileVariable)
      assert.strictEqual((yield* Effect.flip(at({ [profileVariable]: "" }))).field, profileVariable)
      const other = yield* Effect.flip(at({ [profileVariable]: path, CLIENT_API_TYPE: "EX_PROCESS_API" }))
      assert.strictEqual(other.field, "CLIENT_API_TYPE")
      assert.include(other.message, "EX_PROCESS_API")
    }).pipe(Effect.provide(layer))
  )
})
