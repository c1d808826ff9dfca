/**
 * Who a peer is.
 *
 * @since 0.1.0
 */
export * as Fqcn from "./Fqcn.ts"
export * from "./FqcnError.ts"
