"""Foreign APIs: requests and responses of other servers' clients, translated to orders and from replies."""
