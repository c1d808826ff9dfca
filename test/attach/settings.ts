/** Writes docs/settings.md from the Schema of the settings: `npm run docs:settings`. */
import * as NodeFs from "node:fs"
import { fileURLToPath } from "node:url"
import { Duration, Effect, type Schema } from "effect"
import { AttachConfig, decodeAttachConfig } from "../../src/attach/AttachConfig.ts"

export const settingsFile = fileURLToPath(new URL("../../docs/settings.md", import.meta.url))

type Ast = Schema.Top["ast"]

const kindOf = (ast: Ast): string => {
  switch (ast._tag) {
    case "Boolean":
      return "true or false"
    case "Number":
      return "whole number"
    case "Union": {
      const values = ast.types.flatMap((type) => (type._tag === "Literal" ? [`\`${String(type.literal)}\``] : []))
      return values.length === 0 ? "duration" : values.join(", ")
    }
    default:
      return "text"
  }
}

const shown = (value: unknown): string => {
  if (value === undefined) return ""
  return `\`${Duration.isDuration(value) ? Duration.format(value) : String(value)}\``
}

const head = `# Settings of a backend

<!-- Written by \`npm run docs:settings\` from the Schema in src/attach/AttachConfig.ts: change it there. -->

\`AttachBackend.layer({ attachId: "trainer_a", ... })\` takes these; \`AttachBackend.layerConfig("attach")\` reads them from
the program's configuration, under the same names. A duration is a \`Duration\` or a text such as \`"30 seconds"\`, \`"30s"\`,
\`"500ms"\`, \`"10m"\`; a bare number is refused, since it would mean milliseconds to Effect and seconds to NVFlare.
Combinations that can't work are refused when the backend is made, in the words of the rule they break. Defaults are
NVFlare's; what it does not have says so.

`

export const settingsDoc = Effect.gen(function* () {
  const defaults: { readonly [name: string]: unknown } = { ...(yield* decodeAttachConfig({ attachId: "x" })) }
  const rows = Object.entries(AttachConfig.fields).map(([name, field]) => {
    const { ast } = field as Schema.Top
    const fallback = name === "attachId" ? "required" : shown(defaults[name])
    return [`\`${name}\``, kindOf(ast), fallback, String(ast.context?.annotations?.description)]
  })
  return `${head}${table([["setting", "kind", "default", "what it says"], ...rows])}\n`
})

/** A table with columns of even width, as the formatter wants it. */
const table = (rows: ReadonlyArray<ReadonlyArray<string>>): string => {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)))
  const line = (cells: ReadonlyArray<string>) => `| ${cells.join(" | ")} |`
  const [first, ...rest] = rows.map((row) => line(row.map((cell, column) => cell.padEnd(widths[column] ?? 0))))
  return [first, line(widths.map((width) => "-".repeat(width))), ...rest].join("\n")
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  NodeFs.writeFileSync(settingsFile, await Effect.runPromise(settingsDoc))
}
