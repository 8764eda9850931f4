// Package console tests the console of the built program in a browser: headless
// Chromium, driven by chromedp, walks its pages, logs in, is refused and changes
// things.
//
// Invariants:
//
//   - Every wait is bounded.
//   - Every error and every violation of the page's policy that the browser's console
//     reports fails the test, except for the answers that a test asks for.
//   - No browser outlives its test.
//
// Chromium is looked for in PATH. Without one the tests are skipped and say so; with
// SQLBRAIN_REQUIRE_ENGINES=1 they fail. With -pictures DIR they write the pictures of
// docs/console.md.
// Accessibility is judged by axe-core, which `make axe` installs with npm; the test of it is
// skipped, or fails, in the same way. It runs in the browser only, and is no part of the product.
package console
