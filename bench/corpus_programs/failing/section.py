"""Read a section that the configuration file lacks."""

import configparser

print(configparser.ConfigParser().get("optimizer", "lr"))
