/** The package's version; test/cli holds it to package.json. */
export const version = "0.1.0"
