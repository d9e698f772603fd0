package sim

// Stretched is stretched, for the tests outside the package.
var Stretched = stretched
