import { Effect } from "effect"
import type { Driver } from "../Driver.ts"
import type { TransportError } from "../TransportError.ts"
import { badConfig } from "./errors.ts"

/** The lower-cased text before the first colon. Source: docs/wire/transport.md, section 4. */
export const schemeOf = (schemeOrUrl: string): string => {
  const colon = schemeOrUrl.indexOf(":")
  return (colon < 0 ? schemeOrUrl : schemeOrUrl.slice(0, colon)).trim().toLowerCase()
}

/** Finds drivers by scheme. */
export const make = (
  drivers: ReadonlyArray<Driver>
): { readonly forUrl: (schemeOrUrl: string) => Effect.Effect<Driver, TransportError> } => {
  const table = new Map<string, Driver>()
  for (const driver of drivers) {
    for (const scheme of driver.schemes) {
      table.set(scheme, driver)
    }
  }
  return {
    forUrl: (schemeOrUrl) => {
      const scheme = schemeOf(schemeOrUrl)
      const driver = table.get(scheme)
      return driver === undefined
        ? Effect.fail(
            badConfig(
              "url",
              scheme === ""
                ? `"${schemeOrUrl}" has no scheme: write scheme://host:port, with one of ${[...table.keys()].join(", ")}`
                : `no driver for the scheme "${scheme}" of ${schemeOrUrl}; there are: ${[...table.keys()].join(", ")}`
            )
          )
        : Effect.succeed(driver)
    }
  }
}
